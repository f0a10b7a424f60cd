//! The owning end of a ring as a test wants it: a small disk in memory that answers at once, or when told to.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use ring::{Command, Consumer, Doorbell, Entry, Response, TaskManagementKind};

/// Bytes per block.
pub(crate) const BLOCK: usize = 512;

#[derive(Default)]
struct State {
    rung: bool,
    stopped: bool,
    /// Commands are kept instead of answered.
    withhold: bool,
    /// Answer what is kept.
    release: bool,
    /// CDB opcodes in the order they came.
    seen: Vec<u8>,
    withheld: usize,
    notices: Vec<(TaskManagementKind, usize)>,
}

/// A device: one thread that owns the consuming end of a ring.
pub(crate) struct Device {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Bell(Arc<(Mutex<State>, Condvar)>);

impl Doorbell for Bell {
    fn ring(&self) {
        self.0.0.lock().unwrap().rung = true;
        self.0.1.notify_all();
    }
}

impl Device {
    /// Serves `blocks` blocks; `answer` is rung after a batch of answers.
    pub(crate) fn start(consumer: Consumer, blocks: usize, answer: Arc<dyn Doorbell>) -> Self {
        let state: Arc<(Mutex<State>, Condvar)> = Arc::default();
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || run(consumer, vec![0; blocks * BLOCK], &shared, answer.as_ref()));
        Self { state, thread: Some(thread) }
    }

    /// What the portal rings.
    pub(crate) fn bell(&self) -> Arc<dyn Doorbell> {
        Arc::new(Bell(Arc::clone(&self.state)))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.0.lock().unwrap();
        change(&mut state);
        state.rung = true;
        self.state.1.notify_all();
    }

    /// From now on commands are kept.
    pub(crate) fn withhold(&self) {
        self.change(|state| state.withhold = true);
    }

    /// Answers what is kept, and goes on as usual.
    pub(crate) fn release(&self) {
        self.change(|state| (state.withhold, state.release) = (false, true));
    }

    /// Waits until `wanted` commands are kept.
    pub(crate) fn wait_withheld(&self, wanted: usize) {
        self.wait(|state| state.withheld == wanted);
    }

    /// Opcodes seen so far.
    pub(crate) fn seen(&self) -> Vec<u8> {
        self.state.0.lock().unwrap().seen.clone()
    }

    /// Task management notices so far, each with the number of its commands.
    pub(crate) fn notices(&self) -> Vec<(TaskManagementKind, usize)> {
        self.state.0.lock().unwrap().notices.clone()
    }

    fn wait(&self, met: impl Fn(&State) -> bool) {
        let state = self.state.0.lock().unwrap();
        let (_state, late) =
            self.state.1.wait_timeout_while(state, Duration::from_secs(20), |state| !met(state)).unwrap();
        assert!(!late.timed_out(), "the device did not see what was expected");
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.change(|state| (state.stopped, state.withhold, state.release) = (true, false, true));
        let _ = self.thread.take().unwrap().join();
    }
}

fn run(mut consumer: Consumer, mut disk: Vec<u8>, shared: &(Mutex<State>, Condvar), answer: &dyn Doorbell) {
    let mut kept = Vec::new();
    loop {
        let mut state = shared.1.wait_while(shared.0.lock().unwrap(), |state| !state.rung).unwrap();
        state.rung = false;
        let stopped = state.stopped;
        if std::mem::take(&mut state.release) {
            for command in kept.drain(..) {
                answer_command(&mut consumer, command, &mut disk);
            }
        }
        while let Ok(entry) = consumer.next() {
            match entry {
                Entry::Command(command) => {
                    state.seen.push(command.cdb()[0]);
                    if state.withhold {
                        kept.push(command);
                    } else {
                        answer_command(&mut consumer, command, &mut disk);
                    }
                }
                Entry::TaskManagement(notice) => state.notices.push((notice.kind, notice.ids.len())),
            }
        }
        state.withheld = kept.len();
        drop(state);
        shared.1.notify_all();
        let _ = consumer.commit();
        answer.ring();
        if stopped {
            return;
        }
    }
}

fn answer_command(consumer: &mut Consumer, command: Command, disk: &mut [u8]) {
    let response = execute(&command, disk);
    consumer.complete(command, response);
}

fn execute(command: &Command, disk: &mut [u8]) -> Response {
    let cdb = command.cdb();
    let data = command.data();
    let short = |bytes: &[u8]| {
        let len = bytes.len().min(data.len());
        data.copy_in(0, &bytes[..len]);
        Response::good_with(bytes.len())
    };
    match cdb[0] {
        0x00 => Response::good(),
        // INQUIRY: 36 bytes, a disk.
        0x12 => {
            let mut inquiry = [0; 36];
            (inquiry[2], inquiry[3], inquiry[4]) = (5, 2, 31);
            inquiry[8..32].copy_from_slice(b"LIO-ORG TCMU device     ");
            short(&inquiry[..usize::from(cdb[4]).min(36)])
        }
        // READ CAPACITY (10)
        0x25 => {
            let mut capacity = [0; 8];
            capacity[..4].copy_from_slice(&((disk.len() / BLOCK) as u32 - 1).to_be_bytes());
            capacity[4..].copy_from_slice(&(BLOCK as u32).to_be_bytes());
            short(&capacity)
        }
        // READ (10), WRITE (10)
        opcode @ (0x28 | 0x2a) => {
            let lba = u32::from_be_bytes([cdb[2], cdb[3], cdb[4], cdb[5]]) as usize;
            let len = usize::from(u16::from_be_bytes([cdb[7], cdb[8]])) * BLOCK;
            let Some(range) = disk.get_mut(lba * BLOCK..lba * BLOCK + len) else {
                return Response::check_condition(&sense(5, 0x21, 0));
            };
            let moved = len.min(data.len());
            if opcode == 0x28 {
                data.copy_in(0, &range[..moved]);
            } else {
                data.copy_out(0, &mut range[..moved]);
            }
            Response::good_with(len)
        }
        _ => Response::check_condition(&sense(5, 0x20, 0)),
    }
}

fn sense(key: u8, code: u8, qualifier: u8) -> [u8; 18] {
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, code, qualifier);
    sense
}
