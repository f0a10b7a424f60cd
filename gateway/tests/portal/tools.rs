//! libiscsi's own tools against the portal with real lanes and disks in memory. They are in Debian's
//! libiscsi-bin.

use std::collections::BTreeMap;
use std::process::Command;

use rbdgate::portal::{Directory, Redirect};

use crate::kit::{Bench, Setup, TARGET};

fn bench() -> Bench {
    Bench::with(Setup { lanes: true, luns: 2, blocks: 1 << 17, ..Setup::default() })
}

/// Runs a tool to its successful end; what it printed.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new("timeout").arg("60").arg(tool).args(arguments).output().unwrap();
    assert_ne!(output.status.code(), Some(127), "{tool} is not installed; it is in Debian's libiscsi-bin");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool}: {text}");
    text
}

#[test]
fn iscsi_ls_lists_the_target_and_its_luns() {
    let bench = bench();
    let url = format!("iscsi://{}/", bench.address);
    let text = run("iscsi-ls", &["-s", &url]);
    assert!(text.contains(&format!("Target:{TARGET} Portal:{},1", bench.address)), "{text}");
    assert!(text.contains("Lun:0") && text.contains("Lun:1"), "{text}");
}

#[test]
fn iscsi_inq_and_readcapacity_read_what_the_lun_says() {
    let bench = bench();
    let url = format!("iscsi://{}/{TARGET}/0", bench.address);
    let text = run("iscsi-inq", &[&url]);
    assert!(text.contains("LIO-ORG"), "{text}");
    let text = run("iscsi-readcapacity16", &[&url]);
    assert!(text.contains("RETURNED LOGICAL BLOCK ADDRESS:131071"), "{text}");
}

#[test]
fn iscsi_perf_reads_for_a_second() {
    let bench = bench();
    let url = format!("iscsi://{}/{TARGET}/0", bench.address);
    let text = run("iscsi-perf", &["-b", "8", "-m", "32", "-t", "1", "-r", &url]);
    assert!(text.contains("iops"), "{text}");
    bench.wait_idle();
}

#[test]
fn iscsi_inq_follows_a_redirection_to_the_gateway_that_serves_the_target() {
    // RFC 7143, Login Response, Status-Class 1: the initiator logs in at TargetAddress instead.
    let (away, here) = (bench(), bench());
    let redirects =
        BTreeMap::from([(TARGET.to_owned(), Redirect { address: here.address, permanent: false })]);
    away.server().apply(Directory { redirects, ..away.directory.clone() });
    let url = format!("iscsi://{}/{TARGET}/0", away.address);
    let text = run("iscsi-inq", &[&url]);
    assert!(text.contains("LIO-ORG"), "{text}");
    assert_eq!((away.server().stats().logins, here.server().stats().logins), (0, 1));
}
