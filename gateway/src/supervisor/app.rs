//! The gateway as a whole: LUNs at their places, the portal in front of them, and the moves between two configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use ring::Pool;
use tokio::task::JoinSet;

use super::directory::directory;
use super::figures::{portal_figures, session};
use super::front::Front;
use super::lun::{Place, Running, Spec, Surroundings};
use super::memory;
use super::plan::{options, restart_notes, wanted};
use super::redirects::Redirects;
use super::sizes::same_but_size;
use super::stores::{Opened, Stores, attempt};
use crate::config::{Bytes, Config, Frontend};
use crate::control;
use crate::disk::Disk;
use crate::lane::Load;
use crate::nexus::Table;
use crate::portal;
use crate::reactor::Reactors;
use crate::status::{self, State, Status};
use crate::units;

/// A disk that has been opened, or not, for a place that may have changed meanwhile.
type Attempt = (Place, Spec, Result<Opened, String>);

/// How long a reload waits for LUNs it takes out, before it leaves them to finish on their own.
const PARTING: Duration = Duration::from_secs(5);
/// What a stop leaves for closing the disks when the initiators have used up the grace.
const CLOSING: Duration = Duration::from_secs(1);

/// The running gateway.
pub(super) struct App {
    pub(super) config: Config,
    pub(super) around: Surroundings,
    /// Initiators may come: disks have been tried.
    pub(super) is_open: bool,
    stores: Stores,
    reactors: Arc<Reactors>,
    absent: Running,
    redirects: Redirects,
    well_known: Running,
    shared: Arc<Shared>,
    opening: JoinSet<Attempt>,
    in_progress: BTreeSet<Place>,
    /// LUNs that were taken out and have not let go of their store yet; each answers with the store's name.
    leaving: JoinSet<String>,
    /// The stores of `leaving`. They must not be opened anew: a late write of the old LUN would land after the new one's.
    held: BTreeSet<String>,
}

/// What status and metrics read from other threads.
pub(super) struct Shared {
    started: Instant,
    pool: Pool,
    luns: Mutex<Luns>,
    server: Mutex<Option<portal::Server>>,
    listen: Mutex<Vec<SocketAddr>>,
}

#[derive(Default)]
struct Luns {
    wanted: BTreeMap<Place, Spec>,
    running: BTreeMap<Place, Running>,
    down: BTreeMap<Place, String>,
}

impl App {
    /// Opens every disk, waits for them up to `patience`, then lets initiators in.
    pub(super) async fn start(config: Config, patience: Duration) -> anyhow::Result<Self> {
        let pool = Pool::new(config.limits.memory.unwrap_or_else(memory::default_pool));
        let count = if config.reactors == 0 {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            config.reactors
        };
        let reactors = Reactors::start(count).context("cannot start the reactor threads")?;
        let around = Surroundings {
            pool: pool.clone(),
            nexuses: Table::new(),
            units: units::Table::new(),
            options: options(&config),
            qfull_timeout: config.limits.qfull_timeout,
            front: Front::start(&config).context("frontend: lio")?,
        };
        let absent = Running::absent(&around, reactors.pick()).map_err(anyhow::Error::msg)?;
        let well_known = Running::well_known(&around, reactors.pick()).map_err(anyhow::Error::msg)?;
        let shared = Shared {
            started: Instant::now(),
            pool,
            luns: Mutex::default(),
            server: Mutex::default(),
            listen: Mutex::default(),
        };
        let stores =
            Stores::start(config.state.as_deref()).context("cannot start the threads of local disks")?;
        let mut app = Self {
            config,
            around,
            is_open: false,
            stores,
            reactors,
            absent,
            redirects: Redirects::default(),
            well_known,
            shared: Arc::new(shared),
            opening: JoinSet::new(),
            in_progress: BTreeSet::new(),
            leaving: JoinSet::new(),
            held: BTreeSet::new(),
        };
        app.shared.lock().wanted = wanted(&app.config);
        app.open_missing();
        let _ = tokio::time::timeout(patience, app.settle()).await;
        app.is_open = true;
        if app.config.targets.values().any(|target| target.frontend == Frontend::Portal)
            || app.around.front.is_none()
        {
            app.listen()?;
        }
        if let Some(done) = app.publish_to_kernel(true) {
            let _ = tokio::time::timeout(patience, done).await;
        }
        Ok(app)
    }

    fn listen(&self) -> anyhow::Result<()> {
        let limits = &self.config.limits;
        let limits = portal::Limits {
            connections: limits.connections,
            sessions: limits.sessions,
            sessions_per_initiator: limits.sessions_per_initiator,
            unauthenticated: limits.logins,
            unauthenticated_per_address: limits.logins_per_address,
            login_timeout: limits.login_timeout,
            ..portal::Limits::default()
        };
        let nexuses = Arc::clone(&self.around.nexuses);
        let server =
            portal::Server::bind(&self.config.listen, self.directory(), nexuses, &self.reactors, limits)
                .with_context(|| {
                    let list: Vec<String> = self.config.listen.iter().map(SocketAddr::to_string).collect();
                    format!(
                        "cannot listen on {}; choose an address of this machine that no other target uses",
                        list.join(", ")
                    )
                })?;
        *self.shared.listen.lock().unwrap_or_else(PoisonError::into_inner) = server.addresses().to_vec();
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        Ok(())
    }

    fn directory(&self) -> portal::Directory {
        let (Some(absent), Some(well_known)) = (self.absent.port(), self.well_known.port()) else {
            return portal::Directory::default();
        };
        let ports = (absent, well_known);
        let luns = self.shared.lock();
        self.redirects.apply(&self.config, directory(&self.config, &luns.running, &ports, &self.reactors))
    }

    /// Waits until no disk is being opened.
    async fn settle(&mut self) {
        while let Some(attempt) = self.opened().await {
            self.finish(attempt);
        }
    }

    /// The next disk that has been opened or could not be; `None`: none is on its way.
    pub(super) async fn opened(&mut self) -> Option<Box<Attempt>> {
        loop {
            match self.opening.join_next().await? {
                Ok(attempt) => return Some(Box::new(attempt)),
                Err(error) => tracing::error!(%error, "opening a disk failed"),
            }
        }
    }

    /// Puts an opened disk to work (or keeps the reason why it is not).
    pub(super) fn finish(&mut self, attempt: Box<Attempt>) {
        let (place, spec, result) = *attempt;
        let current = self.shared.lock().wanted.get(&place) == Some(&spec);
        let result = match result {
            // The place stays on its way until the store has let go.
            Ok(opened) if !current => {
                self.opening.spawn_blocking(move || {
                    opened.disk.close();
                    (place, spec, Err("the configuration has changed".into()))
                });
                return;
            }
            result => result,
        };
        self.in_progress.remove(&place);
        let result = result
            .and_then(|opened| Running::start(&place, &spec, opened, &self.around, self.reactor(&place)));
        let mut luns = self.shared.lock();
        match result {
            Ok(running) => {
                tracing::info!(target = place.target, lun = place.lun, disk = spec.name, store = %spec.disk.store, "LUN online");
                luns.down.remove(&place);
                luns.running.insert(place, running);
                drop(luns);
                self.publish();
            }
            Err(reason) if current => {
                if luns.down.get(&place) != Some(&reason) {
                    tracing::error!(target = place.target, lun = place.lun, disk = spec.name, %reason, "disk unavailable");
                }
                luns.down.insert(place, reason);
            }
            // What is wanted there now has waited for this one to be out of the way.
            Err(_) => {
                drop(luns);
                self.open_missing();
            }
        }
    }

    fn reactor(&self, place: &Place) -> &crate::reactor::Reactor {
        let index = self.config.targets.keys().position(|name| *name == place.target).unwrap_or(0);
        &self.reactors.all()[index % self.reactors.all().len()]
    }

    /// Tries every disk that is wanted and neither runs nor is on its way.
    pub(super) fn open_missing(&mut self) {
        while let Some(left) = self.leaving.try_join_next() {
            self.let_go(left);
        }
        let mut luns = self.shared.lock();
        let Luns { wanted, running, down } = &mut *luns;
        for (place, spec) in &*wanted {
            if running.contains_key(place) {
                continue;
            }
            if self.held.contains(&spec.disk.store.to_string()) {
                let reason = "its store does not answer: commands from before the reload are still under way";
                down.insert(place.clone(), reason.into());
                continue;
            }
            if !self.in_progress.insert(place.clone()) {
                continue;
            }
            let (place, spec, stores) = (place.clone(), spec.clone(), self.stores.clone());
            let front = self.around.front.clone();
            self.opening.spawn_blocking(move || {
                let result = attempt(|| match &front {
                    Some(front) if spec.frontend != Frontend::Portal => front.open(&stores, &spec),
                    None if spec.frontend != Frontend::Portal => {
                        anyhow::bail!("restart the gateway to serve the first target of frontend: lio")
                    }
                    _ => stores.open(&spec.name, &spec.disk),
                });
                (place, spec, result)
            });
        }
    }

    /// Hands the portal the targets as they are now.
    fn publish(&self) {
        if let Some(server) = self.shared.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            server.apply(self.directory());
        }
        let _ = self.publish_to_kernel(false);
    }

    /// Places whose lanes run.
    pub(super) fn served(&self) -> BTreeSet<Place> {
        self.shared.lock().running.keys().cloned().collect()
    }

    /// Sends the logins of a target, or of all, elsewhere, or lets them in again. Answers with what was done.
    pub(super) fn redirect(&mut self, wanted: &control::Redirect) -> anyhow::Result<String> {
        let mut done = self.redirects.set(&self.config, wanted)?;
        self.publish();
        let server = self.shared.server.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(server)) = (wanted.log_out, server.as_ref()) {
            done += &format!("; {} session(s) asked to log out", server.ask_logout(wanted.target.as_deref()));
        }
        Ok(done)
    }

    /// Moves to another configuration. What it does not touch goes on undisturbed. Answers with what was done.
    pub(super) async fn reload(&mut self, config: Config) -> String {
        let notes = restart_notes(&self.config, &config);
        if config.limits.memory != self.config.limits.memory {
            self.around.pool.set_limit(config.limits.memory.unwrap_or_else(memory::default_pool));
        }
        self.around.options = options(&config);
        self.around.qfull_timeout = config.limits.qfull_timeout;
        let next = wanted(&config);
        let old = std::mem::replace(&mut self.config, config);
        let gone: Vec<(String, Running)> = {
            let mut luns = self.shared.lock();
            luns.down.retain(|place, _| next.contains_key(place));
            let changed: Vec<(String, Place)> = luns
                .wanted
                .iter()
                .filter(|(place, spec)| {
                    let running = luns.running.contains_key(*place);
                    let follows = |next: &Spec| next == *spec || running && same_but_size(spec, next);
                    !next.get(place).is_some_and(follows)
                })
                .map(|(place, spec)| (spec.disk.store.to_string(), place.clone()))
                .collect();
            luns.wanted = next;
            changed
                .into_iter()
                .filter_map(|(store, place)| Some((store, luns.running.remove(&place)?)))
                .collect()
        };
        let removed = gone.len();
        // First out of the initiators' sight, then drained, and only then may the same store be opened anew.
        self.publish();
        if let Some(done) = self.publish_to_kernel(false) {
            let _ = tokio::time::timeout(PARTING, done).await;
        }
        for (store, running) in gone {
            self.leave(store, async move { running.stop().await });
        }
        // A store that has stopped answering must not hold up the rest.
        let _ = tokio::time::timeout(PARTING, self.part()).await;
        let _ = self.publish_to_kernel(true);
        self.open_missing();
        let _ = tokio::time::timeout(super::PATIENCE, self.settle()).await;
        let sizes = self.follow_sizes(&old).await;
        let luns = self.shared.lock();
        let mut summary =
            format!("reloaded: {} LUN(s) online, {} removed or replaced", luns.running.len(), removed);
        for (place, reason) in &luns.down {
            summary += &format!("\n{} LUN {}: {reason}", place.target, place.lun);
        }
        for note in notes.into_iter().map(str::to_owned).chain(sizes) {
            summary += &format!("\nnote: {note}");
        }
        summary
    }

    /// Lets a LUN end on its own; nobody gets `store` before that.
    pub(super) fn leave(&mut self, store: String, end: impl Future<Output = ()> + Send + 'static) {
        self.held.insert(store.clone());
        self.leaving.spawn(async move {
            end.await;
            store
        });
    }

    /// Waits until every LUN that was taken out has let go of its store.
    async fn part(&mut self) {
        while let Some(left) = self.leaving.join_next().await {
            self.let_go(left);
        }
    }

    fn let_go(&mut self, left: Result<String, tokio::task::JoinError>) {
        match left {
            Ok(store) => {
                self.held.remove(&store);
            }
            Err(error) => tracing::error!(%error, "stopping a LUN failed"),
        }
    }

    /// The disks in use that the configuration calls `name`.
    pub(super) fn disks_called(&self, name: &str) -> Vec<Arc<dyn Disk>> {
        let luns = self.shared.lock();
        let places = luns.wanted.iter().filter(|(_, spec)| spec.name == name);
        places.filter_map(|(place, _)| luns.running.get(place)?.disk()).collect()
    }

    /// The disks in use that are not told of a resize elsewhere, and whether somebody is looking at them.
    pub(super) fn untold_disks(&self) -> Vec<(Arc<dyn Disk>, Arc<AtomicBool>)> {
        let luns = self.shared.lock();
        let disks = luns.running.values().filter_map(|running| Some((running.disk()?, running.looking())));
        disks.filter(|(disk, _)| !disk.is_told_of_resizes()).collect()
    }

    /// Why LUNs are down, a line each.
    pub(super) fn down(&self) -> Vec<String> {
        self.shared.lock().down.values().cloned().collect()
    }

    /// Gives memory back that idle LUNs hold.
    pub(super) fn shrink_idle(&self) {
        let freed = self.around.pool.reclaim_idle(self.config.limits.idle_shrink);
        if freed > 0 {
            tracing::debug!(freed = %Bytes(freed), "idle data areas shrunk");
        }
    }

    /// The addresses that initiators reach.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.listen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For status and metrics.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Asks initiators to log out, finishes what has been taken on, closes the disks; all within the grace, with a moment
    /// for the disks. What a store has not answered by then was not acknowledged to an initiator either.
    ///
    /// False when disks did not let go in time. Dropping them would wait for their stores: the process has to exit.
    #[expect(clippy::mem_forget, reason = "a disk that is dropped waits for its store, for ever if need be")]
    pub(super) async fn stop(mut self) -> bool {
        let grace = self.config.limits.shutdown_grace;
        let end = tokio::time::Instant::now() + grace;
        let server = self.shared.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = server {
            server.shutdown(grace).await;
        }
        let running = std::mem::take(&mut self.shared.lock().running);
        for (place, running) in running {
            let name = format!("{} LUN {}", place.target, place.lun);
            self.leave(name, async move { running.stop().await });
        }
        let end = end.max(tokio::time::Instant::now() + CLOSING);
        if tokio::time::timeout_at(end, self.part()).await.is_err() {
            tracing::warn!(luns = self.leaving.len(), "leaving without disks that do not answer");
            std::mem::forget(self);
            return false;
        }
        self.absent.stop().await;
        self.well_known.stop().await;
        // An attempt to open a disk may be waiting for a store that does not answer, too.
        self.opening.is_empty()
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Luns> {
        self.luns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How busy all LUNs are together.
    pub(super) fn load(&self) -> Load {
        self.lock().running.values().map(Running::load).sum()
    }

    /// The state of everything, now.
    pub(super) fn status(&self) -> Status {
        let usage = self.pool.usage();
        let (sessions, portal) = match self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(server) => {
                (server.sessions().iter().map(session).collect(), portal_figures(&server.stats()))
            }
            None => Default::default(),
        };
        let luns = self.lock();
        let listed = luns.wanted.iter().map(|(place, spec)| {
            let mut lun = status::Lun {
                target: place.target.clone(),
                lun: place.lun,
                disk: spec.name.clone(),
                store: spec.disk.store.to_string(),
                ..status::Lun::default()
            };
            match luns.running.get(place) {
                Some(running) => running.report(&mut lun),
                None => {
                    let reason = luns.down.get(place).cloned();
                    lun.state = State::Unavailable(reason.unwrap_or_else(|| "being opened".into()));
                }
            }
            lun
        });
        Status {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            listen: self
                .listen
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .map(SocketAddr::to_string)
                .collect(),
            memory: status::Memory {
                limit: usage.limit,
                charged: usage.charged,
                in_use: usage.in_use,
                reserved: usage.reserved,
            },
            portal,
            luns: listed.collect(),
            sessions,
        }
    }
}
