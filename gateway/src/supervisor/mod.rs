//! Builds the gateway from its configuration, keeps it running, and takes it down in order.
//!
//! Nothing binds a port before the configuration is whole and the disks have been tried, so that an initiator never
//! finds a target without its LUNs.

mod app;
mod directory;
mod figures;
mod front;
mod gather;
mod lun;
mod memory;
mod plan;
mod redirects;
mod sizes;
mod stores;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use self::app::App;
use crate::admin;
use crate::config::Config;
use crate::control::{self, Asked, Command};
use crate::metrics::Source;

/// How long a start or a reload waits for disks before it goes on without the slow ones.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often a disk that did not open is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// How often the sizes of disks are looked at that are not told of a resize elsewhere.
const LOOK: Duration = Duration::from_secs(5);

/// Runs the gateway until SIGTERM or SIGINT. `file` is read again on SIGHUP and `rbdgate reload`; without one (the demo)
/// a disk that does not open is an error. `ready` is called with the addresses once initiators
/// can log in.
#[expect(clippy::exit, reason = "returning would wait for stores that may never answer")]
pub fn run(config: Config, file: Option<PathBuf>, ready: impl FnOnce(&[SocketAddr])) -> anyhow::Result<()> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(serve(config, file.as_deref(), ready));
    match result {
        Ok(Ended::Orderly) => Ok(()),
        // Everything that could be put in order is. What is left waits, when dropped, for stores that may never answer.
        Ok(Ended::Abandoned) => std::process::exit(0),
        Err(error) => {
            runtime.shutdown_background();
            Err(error)
        }
    }
}

/// How the gateway came to its end.
enum Ended {
    /// Every disk has been closed.
    Orderly,
    /// Stores are still being waited for, in threads and tasks that cannot be ended.
    Abandoned,
}

async fn serve(
    config: Config,
    file: Option<&Path>,
    ready: impl FnOnce(&[SocketAddr]),
) -> anyhow::Result<Ended> {
    // Caught from the first moment, so that a signal during a slow start still ends it in order.
    let mut signals = Signals::new()?;
    let (admin_config, gather) = (config.admin.clone(), config.gather);
    let mut app = tokio::select! {
        app = App::start(config, PATIENCE) => app?,
        () = signals.end() => return Ok(Ended::Abandoned),
    };
    if file.is_none()
        && let Some(reason) = app.down().first()
    {
        let reason = reason.clone();
        let _ = app.stop().await;
        bail!(reason);
    }
    let shared = app.shared();
    if gather {
        tokio::spawn(gather::watch(Arc::downgrade(&shared)));
    }
    let source: Source = Arc::new(move || shared.status());
    if let Some(listen) = admin_config.listen {
        let listener =
            admin::bind(listen).await.with_context(|| format!("admin.listen: cannot listen on {listen}"))?;
        tokio::spawn(admin::serve(listener, Arc::clone(&source)));
    }
    let control = listen_for_requests(&admin_config.control);
    ready(&app.addresses());
    run_until_told(&mut app, file, &mut signals, control, &source).await;
    tracing::info!("stopping");
    tokio::select! {
        orderly = app.stop() => {
            tracing::info!("stopped");
            Ok(if orderly { Ended::Orderly } else { Ended::Abandoned })
        }
        () = signals.end() => {
            tracing::warn!("told again: leaving without waiting for what is in flight");
            Ok(Ended::Abandoned)
        }
    }
}

async fn run_until_told(
    app: &mut App,
    file: Option<&Path>,
    signals: &mut Signals,
    mut control: mpsc::Receiver<Asked>,
    source: &Source,
) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut retry = interval(RETRY);
    retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::End => return,
                Signal::Reload => match unless_ended(signals, reload(app, file)).await {
                    Some(Ok(summary)) => tracing::info!("{summary}"),
                    Some(Err(error)) => tracing::warn!("not reloaded: {error:#}"),
                    None => return,
                },
            },
            Some(attempt) = app.opened() => app.finish(attempt),
            Some(asked) = control.recv() => {
                if unless_ended(signals, answer(asked, app, file, source)).await.is_none() {
                    return;
                }
            }
            _ = second.tick() => app.shrink_idle(),
            _ = retry.tick() => app.open_missing(),
            _ = look.tick() => app.look_at_sizes(),
        }
    }
}

/// Does `work`, which may wait for a store for ever; `None` when the end was asked for meanwhile.
async fn unless_ended<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = signals.end() => None,
    }
}

/// Takes requests in a task of its own. A gateway whose control socket cannot be made serves all the same.
fn listen_for_requests(path: &Path) -> mpsc::Receiver<Asked> {
    let (requests, inbox) = mpsc::channel(4);
    match control::Server::bind(path) {
        Ok(server) => {
            tokio::spawn(async move {
                loop {
                    match server.next().await {
                        Ok(asked) => {
                            if requests.send(asked).await.is_err() {
                                return;
                            }
                        }
                        Err(error) => {
                            tracing::warn!(%error, "control socket");
                            tokio::time::sleep(Duration::from_secs(1)).await;
                        }
                    }
                }
            });
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no control socket: status and reload cannot reach this gateway");
        }
    }
    inbox
}

async fn answer(asked: Asked, app: &mut App, file: Option<&Path>, source: &Source) {
    match asked.command.clone() {
        Command::Redirect(wanted) => {
            let result = app.redirect(&wanted);
            asked.answer(result).await;
        }
        Command::Status => asked.answer(Ok(source())).await,
        Command::Reload => {
            let result = reload(app, file).await;
            asked.answer(result).await;
        }
        Command::Resize { disk, size, shrink } => {
            let result = app.resize(&disk, size, shrink).await;
            asked.answer(result).await;
        }
    }
}

async fn reload(app: &mut App, file: Option<&Path>) -> anyhow::Result<String> {
    let file = file.context("this gateway has no configuration file; it is a demo")?;
    let config = Config::load(file).context("nothing was changed")?;
    Ok(app.reload(config).await)
}

struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::End,
            _ = self.interrupt.recv() => Signal::End,
            _ = self.hangup.recv() => Signal::Reload,
        }
    }

    /// Until the end is asked for; a reload before the start is done has nothing to do.
    async fn end(&mut self) {
        while self.next().await == Signal::Reload {}
    }
}

#[derive(PartialEq, Eq)]
enum Signal {
    End,
    Reload,
}

/// Every session is a descriptor: take as many as the system lets us.
fn raise_file_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::debug!(%error, "the limit of open files stays at {soft}");
    }
}
