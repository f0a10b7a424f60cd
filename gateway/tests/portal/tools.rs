//! libiscsi's own tools against the portal with real lanes and disks in memory. Skipped, with a word, where the tools
//! (Debian's libiscsi-bin) are not installed.

use std::process::Command;

use crate::kit::{Bench, Setup, TARGET};

fn bench() -> Bench {
    Bench::with(Setup { lanes: true, luns: 2, blocks: 1 << 17, ..Setup::default() })
}

/// Runs a tool; `None` when it is not installed.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn run(tool: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new("timeout").arg("60").arg(tool).args(arguments).output() {
        Ok(output) if output.status.code() != Some(127) => output,
        _ => {
            eprintln!("skipped: {tool} is not installed");
            return None;
        }
    };
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool}: {text}");
    Some(text)
}

#[test]
fn iscsi_ls_lists_the_target_and_its_luns() {
    let bench = bench();
    let url = format!("iscsi://{}/", bench.address);
    let Some(text) = run("iscsi-ls", &["-s", &url]) else { return };
    assert!(text.contains(&format!("Target:{TARGET} Portal:{},1", bench.address)), "{text}");
    assert!(text.contains("Lun:0") && text.contains("Lun:1"), "{text}");
}

#[test]
fn iscsi_inq_and_readcapacity_read_what_the_lun_says() {
    let bench = bench();
    let url = format!("iscsi://{}/{TARGET}/0", bench.address);
    let Some(text) = run("iscsi-inq", &[&url]) else { return };
    assert!(text.contains("LIO-ORG"), "{text}");
    let Some(text) = run("iscsi-readcapacity16", &[&url]) else { return };
    assert!(text.contains("RETURNED LOGICAL BLOCK ADDRESS:131071"), "{text}");
}

#[test]
fn iscsi_perf_reads_for_a_second() {
    let bench = bench();
    let url = format!("iscsi://{}/{TARGET}/0", bench.address);
    let Some(text) = run("iscsi-perf", &["-b", "8", "-m", "32", "-t", "1", "-r", &url]) else { return };
    assert!(text.contains("iops"), "{text}");
    bench.wait_idle();
}

/// For trying things by hand: `PORTAL_SECONDS=600 cargo test --test portal_tools -- --ignored serve`.
#[test]
#[ignore = "serves until the time is over"]
fn serve() {
    let seconds = std::env::var("PORTAL_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let listen = vec!["127.0.0.1:3299".parse().unwrap()];
    let bench = Bench::with(Setup { listen, lanes: true, luns: 2, blocks: 1 << 21, ..Setup::default() });
    eprintln!("iscsi://{}/{TARGET}/0", bench.address);
    std::thread::sleep(std::time::Duration::from_secs(seconds));
    eprintln!("{:?}", bench.server().stats());
}
