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

fn sized(folder: &tempfile::TempDir, size: &str) -> Config {
    let file = folder.path().join("rbdgate.yaml");
    let path = folder.path().join("disk.img");
    let text = format!(
        "listen: [\"127.0.0.1:0\"]\nreactors: 1\n\
         disks:\n  one: {{ memory: {{ size: {size} }} }}\n  two: {{ file: {{ path: {}, size: {size} }} }}\n\
         targets:\n  - {{ name: \"iqn.2026-01.com.example:t\", open: true, luns: {{ 0: one, 1: two }} }}\n",
        path.display()
    );
    std::fs::write(&file, text).unwrap();
    Config::load(&file).unwrap()
}

fn sizes(app: &App) -> Vec<u64> {
    ["one", "two"].iter().flat_map(|name| app.disks_called(name)).map(|disk| disk.size()).collect()
}

#[tokio::test]
async fn a_disk_in_use_grows_by_a_reload_and_is_cut_only_when_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut app = App::start(sized(&folder, "1MiB"), Duration::from_secs(60)).await.unwrap();
    let summary = app.reload(sized(&folder, "3MiB")).await;
    assert_eq!(summary, "reloaded: 2 LUN(s) online, 0 removed or replaced");
    assert_eq!(sizes(&app), [3 << 20, 3 << 20]);
    let summary = app.reload(sized(&folder, "2MiB")).await;
    assert!(summary.starts_with("reloaded: 2 LUN(s) online, 0 removed or replaced"), "{summary}");
    assert!(summary.contains("two keeps its size"), "{summary}");
    assert!(app.resize("two", 2 << 20, false).await.is_err());
    assert!(app.resize("three", 2 << 20, false).await.is_err());
    assert!(app.resize("one", 1000, true).await.is_err());
    let said = app.resize("two", 1 << 20, true).await.unwrap();
    assert!(said.starts_with("two: 1MiB") && said.contains("still says 2MiB"), "{said}");
    assert_eq!(sizes(&app), [3 << 20, 1 << 20]);
    assert!(app.stop().await);
}

#[tokio::test]
async fn a_file_that_has_grown_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let app = App::start(sized(&folder, "1MiB"), Duration::from_secs(60)).await.unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("disk.img")).unwrap();
    file.set_len(5 << 20).unwrap();
    app.look_at_sizes();
    let noticed = async {
        while sizes(&app)[1] != 5 << 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.unwrap();
    assert!(app.stop().await);
}
