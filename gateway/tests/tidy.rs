//! House rules that a compiler does not check: size of files, documents at their top, where `unsafe` lives, and which
//! room may name which.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines in one file.
const CEILING: usize = 500;

/// Where `unsafe` is at home.
const UNSAFE_ROOMS: [&str; 3] = ["ring/src/shm/", "rbd/src/ffi/", "gateway/src/disk/rbd"];

/// Room → names it must not use (ARCHITECTURE, "who may know whom").
const FORBIDDEN: [(&str, &[&str]); 9] = [
    (
        "gateway/src/scsi/",
        &[
            "tokio",
            "rbd::",
            "ring::Segments",
            "ring::Producer",
            "ring::Consumer",
            "crate::lane",
            "crate::portal",
        ],
    ),
    ("gateway/src/portal/", &["crate::scsi", "crate::disk", "crate::lane", "crate::config", "rbd::"]),
    ("gateway/src/disk/", &["crate::scsi", "crate::lane", "crate::portal", "crate::config", "tokio"]),
    ("gateway/src/cluster/", &["crate::scsi", "crate::lane", "crate::portal", "crate::config", "tokio"]),
    (
        "gateway/src/lio/",
        &["crate::scsi", "crate::disk", "crate::lane", "crate::portal", "crate::config", "rbd::", "tokio"],
    ),
    ("gateway/src/lane/", &["crate::portal", "crate::config", "crate::cli"]),
    (
        "gateway/src/config/",
        &["crate::disk", "crate::scsi", "crate::lane", "crate::portal", "crate::supervisor", "tokio"],
    ),
    ("ring/src/", &["tokio", "rbd::", "rbdgate::"]),
    ("rbd/src/", &["tokio", "ring::", "rbdgate::"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the workspace").to_owned()
}

fn sources() -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder of the project").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            if path.is_dir() && !name.ends_with("target") {
                walk(&path, root, found);
            } else if name.ends_with(".rs") {
                found.push((name, fs::read_to_string(&path).expect("a source file")));
            }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    for room in ["ring", "rbd", "gateway"] {
        walk(&root.join(room), &root, &mut found);
    }
    assert!(found.len() > 50, "only {} sources found: the walk is broken", found.len());
    found
}

/// Lines of code, without comments, up to the first test module.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines =
        text.lines().enumerate().take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]"));
    lines.map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

fn assert_none(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn no_file_is_longer_than_a_person_reads_in_one_go() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|(_, text)| text.lines().count() > CEILING)
        .map(|(name, text)| format!("{name}: {} lines", text.lines().count()))
        .collect();
    assert_none(&long, "files above the ceiling");
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<String> = sources()
        .iter()
        .filter(|(_, text)| !text.lines().any(|line| line.starts_with("//!")))
        .map(|(name, _)| name.clone())
        .collect();
    assert_none(&silent, "files without a //! document");
}

#[test]
fn unsafe_stays_in_its_rooms_and_says_why() {
    let mut found = Vec::new();
    for (name, text) in sources() {
        if name.contains("/tests/") || name.contains("/fuzz/") {
            continue;
        }
        let uses = code(&text).any(|(_, line)| {
            line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
        });
        if uses && !UNSAFE_ROOMS.iter().any(|room| name.starts_with(room)) {
            found.push(format!("{name}: outside the rooms"));
        }
        if uses && !text.contains("UNSAFETY:") && !text.contains("SAFETY:") {
            found.push(format!("{name}: without a reason"));
        }
    }
    assert_none(&found, "unsafe");
}

#[test]
fn rooms_name_only_whom_they_may() {
    let mut found = Vec::new();
    for (name, text) in sources() {
        let rules = FORBIDDEN.iter().filter(|(room, _)| name.starts_with(room) && !name.contains("/tests"));
        for (_, names) in rules {
            // The adapter is the one place where RBD meets the block vocabulary.
            let adapter = name.starts_with("gateway/src/disk/rbd");
            for (number, line) in code(&text) {
                let broken =
                    names.iter().filter(|other| mentions(line, other) && !(adapter && **other == "rbd::"));
                found.extend(broken.map(|other| format!("{name}:{number}: {other}")));
            }
        }
    }
    assert_none(&found, "a room names what it must not know");
}

/// `rbd::` is a mention; `disk::rbd::` and `librbd::` are not.
fn mentions(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || (c == ':' && !name.starts_with("crate")))
    })
}

#[test]
fn nothing_is_left_open() {
    let mut found = Vec::new();
    for (name, text) in sources().iter().filter(|(name, _)| name != "gateway/tests/tidy.rs") {
        for (number, line) in text.lines().enumerate() {
            let open = ["todo!(", "unimplemented!(", "FIXME", "XXX", "#[ignore", "#[allow(", "#![allow("];
            found.extend(
                open.iter()
                    .filter(|word| line.contains(**word))
                    .map(|word| format!("{name}:{}: {word}", number + 1)),
            );
        }
    }
    assert_none(&found, "left open");
}

#[test]
fn every_test_that_the_complaints_name_is_there() {
    let list = fs::read_to_string(root().join("gateway/docs/complaints.md")).expect("the list");
    let sources = sources();
    let is_there = |test: &str| {
        let head = format!("fn {test}(");
        sources.iter().any(|(_, text)| text.contains(&head))
    };
    let rows = list.lines().filter(|line| line.starts_with('|'));
    let named: Vec<_> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 30, "only {} tests found: the list has another form", named.len());
    let gone: Vec<_> = named.into_iter().filter(|test| !is_there(test)).map(str::to_owned).collect();
    assert_none(&gone, "named in gateway/docs/complaints.md, and nowhere to be found");
}
