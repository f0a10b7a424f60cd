//! SET TARGET PORT GROUPS through a ring and a lane: a change may take its time, and holds nobody up.

use std::sync::{Arc, Mutex};

use rbdgate::disk::Disk;
use rbdgate::disk::memory::Memory;
use rbdgate::scsi::alua::{Cause, Done, Group, Groups, Source, State, States, Wish};
use rbdgate::scsi::{Identity, Settings, Unit};

use crate::driver::*;

type Listener = Box<dyn Fn() + Send + Sync>;

/// Changes states when the test says so.
#[derive(Default)]
struct Slow {
    state: Mutex<Option<State>>,
    listener: Mutex<Option<Listener>>,
    pending: Mutex<Option<(State, Done)>>,
}

impl Slow {
    fn become_now(&self, state: State) {
        *self.state.lock().unwrap() = Some(state);
        if let Some(listener) = &*self.listener.lock().unwrap() {
            listener();
        }
    }
}

impl Source for Slow {
    fn groups(&self) -> Arc<Groups> {
        let group = Group {
            id: 1,
            state: self.state.lock().unwrap().unwrap_or(State::ActiveOptimized),
            preferred: false,
            cause: Cause::Explicit,
            supported: States::of(&[State::ActiveOptimized, State::Standby]),
            ports: vec![1],
        };
        Arc::new(Groups { implicit: true, explicit: true, transition_seconds: 0, groups: vec![group] })
    }

    fn on_change(&self, listener: Listener) {
        *self.listener.lock().unwrap() = Some(listener);
    }

    fn set(&self, wishes: &[Wish], done: Done) {
        *self.pending.lock().unwrap() = Some((wishes[0].state, done));
    }
}

const REPORT: [u8; 12] = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0];
const SET: [u8; 12] = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];

#[test]
fn setting_states_waits_for_the_source_and_nobody_else_waits() {
    let reactors = reactors(1);
    let source = Arc::new(Slow::default());
    let disk: Arc<dyn Disk> = Arc::new(Memory::new(1 << 20, BLOCK as u32));
    let setup = Setup::default();
    let nexuses = Arc::clone(&setup.nexuses);
    let unit = Unit::new(
        Identity::from_serial("test"),
        disk.geometry().clone(),
        disk.size(),
        nexuses,
        Settings::default(),
    )
    .reached_through(Arc::clone(&source) as _);
    let mut driver = Driver::start_unit(reactors.pick(), disk, unit, &setup);
    let (set, _) = driver.send(&SET, &[0, 0, 0, 0, 2, 0, 0, 1]);
    eventually("it is asked for", || source.pending.lock().unwrap().is_some());
    assert_eq!(driver.put(&write_16(0, 1), &pattern(1, 512)).status, GOOD);
    let (state, done) = source.pending.lock().unwrap().take().unwrap();
    assert_eq!(state, State::Standby);
    source.become_now(state);
    done(Ok(()));
    assert_eq!(driver.wait(set).status, GOOD);
    assert_eq!(driver.get(&REPORT, 64).bytes()[4], 2);
    // SPC-4, SET TARGET PORT GROUPS: a source that forgets it has failed.
    let (set, _) = driver.send(&SET, &[0, 0, 0, 0, 0, 0, 0, 1]);
    eventually("it is asked for", || source.pending.lock().unwrap().is_some());
    drop(source.pending.lock().unwrap().take());
    assert_eq!(driver.wait(set).sense_triple(), (4, 0x67, 0x0A));
    // An unasked change is told (SPC-4, ASYMMETRIC ACCESS STATE CHANGED).
    source.become_now(State::ActiveOptimized);
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).sense_triple(), (6, 0x2A, 0x06));
    assert_eq!(driver.get(&TEST_UNIT_READY, 0).status, GOOD);
    driver.stop();
}
