//! Compares every declaration with the installed headers, by the C compiler.
//!
//! From the descriptions that the macros of [`functions`](super::functions) and [`types`](super::types) leave behind, it
//! writes a C file of `_Static_assert`s on `__builtin_types_compatible_p`, sizes, offsets and numbers, and compiles it
//! against `rados/librados.h` and `rbd/librbd.h` (Debian: librados-dev, librbd-dev). An optional function that the header
//! does not have is skipped.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use super::functions::{Declaration, RADOS, RBD};
use super::types::{CALLBACKS, CONSTANTS, HANDLES, layouts};

/// A Rust type of a declaration in C's words.
fn c_type(rust: &str) -> String {
    let rust = rust.replace("* const", "*const").replace("* mut", "*mut");
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*const ") {
        return format!("{} const *", c_type(target));
    }
    if let Some(target) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(target));
    }
    match rust {
        "" | "()" | "c_void" => "void",
        "c_char" => "char",
        "c_uchar" => "unsigned char",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "bool" => "_Bool",
        "iovec" => "struct iovec",
        "timeval" => "struct timeval",
        // The rest has C's own name: handles, callbacks, structures, ssize_t, time_t.
        own => own,
    }
    .to_owned()
}

fn signature(args: &[&str], ret: &str, name: &str) -> String {
    let args: Vec<String> = args.iter().map(|arg| c_type(arg)).collect();
    let args = if args.is_empty() { "void".to_owned() } else { args.join(", ") };
    format!("{} {name}({args})", c_type(ret))
}

const PROLOGUE: &str = "#include <stddef.h>\n#include <stdint.h>\n#include <sys/time.h>\n#include <sys/types.h>\n\
                        #include <sys/uio.h>\n#include <rados/librados.h>\n#include <rbd/librbd.h>\n";

/// True when the headers declare this name.
fn declared(name: &str) -> bool {
    compile(&format!("{PROLOGUE}\nvoid *probe = (void *){name};\n")).is_ok()
}

/// The whole comparison as a C file.
fn source(declarations: &[&Declaration]) -> String {
    let mut c = PROLOGUE.to_owned();
    for name in HANDLES {
        let _ = writeln!(c, "_Static_assert(__builtin_types_compatible_p({name}, void *), \"{name}\");");
    }
    for (name, args, ret) in CALLBACKS {
        // Nobody in the headers uses our own name; for the others this is the comparison.
        let ours = signature(args, ret, "(*)");
        if name.starts_with("rbdgate_") {
            let _ = writeln!(c, "typedef {};", signature(args, ret, &format!("(*{name})")));
        } else {
            let _ = writeln!(c, "_Static_assert(__builtin_types_compatible_p({name}, {ours}), \"{name}\");");
        }
    }
    for (name, size, fields) in layouts() {
        let _ = writeln!(c, "_Static_assert(sizeof({name}) == {size}, \"sizeof {name}\");");
        for (field, offset) in fields {
            let _ = writeln!(c, "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        }
    }
    for (name, value) in CONSTANTS {
        let _ = writeln!(c, "_Static_assert({name} == {value}, \"{name}\");");
    }
    for name in ["rbd_lock_mode_t", "rbd_config_source_t"] {
        let _ =
            writeln!(c, "_Static_assert(sizeof({name}) == sizeof(unsigned) && ({name})-1 > 0, \"{name}\");");
    }
    for Declaration { name, args, ret, optional } in declarations {
        if *optional && !declared(name) {
            continue;
        }
        let ours = signature(args, ret, "");
        let _ = writeln!(
            c,
            "_Static_assert(__builtin_types_compatible_p(__typeof__({name}), {ours}), \"{name}\");"
        );
    }
    c
}

/// What the C compiler says about it.
fn compile(c: &str) -> Result<(), String> {
    use std::io::Write as _;
    let mut child = Command::new("gcc")
        .args(["-x", "c", "-std=gnu11", "-fsyntax-only", "-Wno-deprecated-declarations", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gcc is needed to compare the declarations with Ceph's headers: apt-get install gcc");
    child.stdin.take().unwrap().write_all(c.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn require_headers() {
    compile(PROLOGUE).expect("Ceph's headers are needed: apt-get install librados-dev librbd-dev");
}

#[test]
fn ceph_headers_agree_with_every_declaration() {
    require_headers();
    let all: Vec<&Declaration> = RADOS.iter().chain(RBD).collect();
    assert!(all.len() > 90, "the tables are empty: {}", all.len());
    if let Err(said) = compile(&source(&all)) {
        panic!("a declaration differs from the installed header:\n{said}");
    }
}

#[test]
fn ceph_headers_refuse_a_changed_declaration() {
    require_headers();
    let wrong = [
        // A narrower length, a missing argument, another return type, a lost const, a wrong order.
        Declaration {
            name: "rados_pool_list",
            args: &["rados_t", "*mut c_char", "u32"],
            ret: "c_int",
            optional: false,
        },
        Declaration { name: "rbd_aio_flush", args: &["rbd_image_t"], ret: "c_int", optional: false },
        Declaration {
            name: "rbd_aio_get_return_value",
            args: &["rbd_completion_t"],
            ret: "c_int",
            optional: false,
        },
        Declaration {
            name: "rbd_remove",
            args: &["rados_ioctx_t", "*mut c_char"],
            ret: "c_int",
            optional: false,
        },
        Declaration {
            name: "rbd_aio_write_zeroes",
            args: &["rbd_image_t", "u64", "rbd_completion_t", "usize", "c_int", "c_int"],
            ret: "c_int",
            optional: false,
        },
    ];
    for declaration in &wrong {
        let said = compile(&source(&[declaration])).expect_err(declaration.name);
        assert!(said.contains(declaration.name), "{said}");
    }
}

#[test]
fn ceph_headers_are_asked_before_an_optional_function_is_skipped() {
    require_headers();
    let gone = |optional| Declaration { name: "rbd_no_such_function", args: &[], ret: "c_int", optional };
    assert!(compile(&source(&[&gone(true)])).is_ok());
    assert!(compile(&source(&[&gone(false)])).is_err());
}
