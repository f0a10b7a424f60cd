//! What a store that stops answering may hold up: its own LUN, and nothing else.

use std::future;
use std::time::Duration;

use super::app::App;
use super::{Signals, unless_ended};
use crate::config::Config;

fn config(folder: &tempfile::TempDir, luns: &str) -> Config {
    let file = folder.path().join("rbdgate.yaml");
    let text = format!(
        "listen: [\"127.0.0.1:0\"]\nreactors: 1\nlimits: {{ shutdown_grace: 0s }}\n\
         disks:\n  one: {{ memory: {{ size: 1MiB }} }}\n  two: {{ memory: {{ size: 2MiB }} }}\n\
         targets:\n  - {{ name: \"iqn.2026-01.com.example:t\", open: true, luns: {luns} }}\n"
    );
    std::fs::write(&file, text).unwrap();
    Config::load(&file).unwrap()
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_disk_that_never_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut app = App::start(config(&folder, "{ 0: one }"), Duration::from_secs(60)).await.unwrap();
    app.leave("memory:2MiB".into(), future::pending());
    let orderly = tokio::time::timeout(Duration::from_secs(60), app.stop()).await.unwrap();
    assert!(!orderly, "the process must not wait for what is left");
}

#[tokio::test]
async fn a_stop_of_disks_that_answer_is_orderly() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start(config(&folder, "{ 0: one, 1: two }"), Duration::from_secs(60)).await.unwrap();
    assert!(app.stop().await);
}

#[tokio::test]
async fn a_store_that_an_earlier_lun_still_holds_is_not_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let mut app = App::start(config(&folder, "{ 0: one }"), Duration::from_secs(60)).await.unwrap();
    let (answer, answered) = tokio::sync::oneshot::channel::<()>();
    app.leave("memory:2MiB".into(), async move {
        let _ = answered.await;
    });

    let summary = app.reload(config(&folder, "{ 0: one, 1: two }")).await;
    assert!(summary.starts_with("reloaded: 1 LUN(s) online"), "{summary}");
    assert!(summary.contains("LUN 1: its store does not answer"), "{summary}");

    answer.send(()).unwrap();
    let summary = app.reload(config(&folder, "{ 0: one, 1: two }")).await;
    assert!(summary.starts_with("reloaded: 2 LUN(s) online"), "{summary}");
    assert!(app.stop().await);
}

#[tokio::test]
async fn a_reload_that_waits_for_ever_does_not_keep_the_gateway_from_ending() {
    let mut signals = Signals::new().unwrap();
    assert_eq!(unless_ended(&mut signals, async { 1 }).await, Some(1));
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGHUP).unwrap();
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
    let told = unless_ended(&mut signals, future::pending::<()>());
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), told).await, Ok(None));
}
