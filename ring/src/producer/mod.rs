//! The producing end over a memfd: what `target_core_user` is in the kernel, in user space.

mod cursor;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use smallvec::SmallVec;

use self::cursor::{Answer, Cursor};
use crate::abi::{command, header, mailbox, task_management};
use crate::area::{Allocate, Area, IdleCommands};
use crate::shm::{Mapping, PAGE};
use crate::{Consumer, Corrupt, Extent, Kick, Nexus, Pool, Reserve, TaskManagementKind};

/// Sizes of one LUN's ring. All in bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mailbox and command ring together; default 8 MiB.
    pub command_area: usize,
    /// Address range reserved for data; default 1 GiB. Nothing is allocated at first.
    pub data_area: usize,
    /// Block size; a multiple of the page size; default one page.
    pub block: usize,
    /// Resident data-area bytes that an idle shrink leaves.
    pub floor: usize,
    /// The largest command expected; the pool keeps this much within reach of every LUN. Default 1 MiB.
    pub largest_command: usize,
    /// Back the whole data area at creation (what a fixed ring does; for comparison).
    pub preallocate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command_area: 8 << 20,
            data_area: 1 << 30,
            block: PAGE,
            floor: 0,
            largest_command: 1 << 20,
            preallocate: false,
        }
    }
}

/// Why a ring could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// An option is out of range; says which and what is accepted.
    #[error("{0}")]
    Option(String),
    /// The memfd or its mapping failed.
    #[error("shared memory")]
    Memory(#[source] std::io::Error),
}

/// A ring over a new sealed memfd: both ends.
pub fn create<T: Send + 'static>(
    options: &Options,
    pool: &Pool,
) -> Result<(Producer<T>, Consumer), CreateError> {
    check(options)?;
    let mapping = Mapping::create(options.command_area + options.data_area).map_err(CreateError::Memory)?;
    let area = Area::new(Arc::clone(&mapping), options.command_area, options.block, options.floor, pool);
    pool.expect_commands_of(options.largest_command as u64);
    if options.preallocate {
        area.preallocate().map_err(CreateError::Memory)?;
    }
    let cursor = Cursor::new(Arc::clone(&mapping), Arc::clone(&area), options.command_area - mailbox::SIZE);
    let state = State { cursor, table: Vec::new(), free: Vec::new(), room: Vec::new(), closed: false };
    let shared = Arc::new(Shared { mapping: Arc::clone(&mapping), area, state: Mutex::new(state) });
    let idle: Weak<Shared<T>> = Arc::downgrade(&shared);
    shared.area.set_commands(idle);
    let consumer =
        Consumer::over(mapping).map_err(|corrupt| CreateError::Memory(std::io::Error::other(corrupt)))?;
    Ok((Producer { shared }, consumer))
}

fn check(options: &Options) -> Result<(), CreateError> {
    let whole = |name: &str, value: usize, unit: usize, least: usize, most: usize| {
        if value.is_multiple_of(unit) && (least..=most).contains(&value) {
            return Ok(());
        }
        Err(CreateError::Option(format!("{name} is {value}; a multiple of {unit} from {least} to {most}")))
    };
    whole("block", options.block, PAGE, PAGE, 4 << 20)?;
    whole("command_area", options.command_area, PAGE, 4 * PAGE, 64 << 20)?;
    whole("data_area", options.data_area, options.block, options.block, 1 << 40)
}

/// The producing end. Clones share it; every method may be called from any thread.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    mapping: Arc<Mapping>,
    area: Arc<Area>,
    state: Mutex<State<T>>,
}

struct State<T> {
    cursor: Cursor,
    /// Commands in flight, by id − 1.
    table: Vec<Option<InFlight<T>>>,
    free: Vec<u16>,
    room: Vec<Waker>,
    closed: bool,
}

struct InFlight<T> {
    context: T,
    data: Extent,
}

impl<T> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("area", &self.shared.area).finish_non_exhaustive()
    }
}

/// `cmd_id` of the ring entry, unique among the commands in flight; never 0.
pub type CommandId = u16;

/// Why no blocks were handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// More than the whole data area, or than the pool's limit: never possible (INVALID FIELD IN CDB is the right answer).
    #[error("larger than the whole data area")]
    TooLarge,
    /// Not now: area or pool is used up, or others wait in front.
    #[error("the data area is used up")]
    Exhausted,
}

/// One command for the ring.
#[derive(Debug)]
pub struct Request<'a, T> {
    /// The CDB, 1 to 260 bytes.
    pub cdb: &'a [u8],
    /// Who sent it.
    pub nexus: Nexus,
    /// Data-out (filled) or room for data-in; empty for a command without data.
    pub data: Extent,
    /// Given back in the [`Completion`].
    pub context: T,
}

/// A request that was not queued, given back whole.
#[derive(Debug)]
pub struct Rejected<T> {
    /// Why.
    pub reason: RejectedReason,
    /// The request's data.
    pub data: Extent,
    /// The request's context.
    pub context: T,
}

/// Why a request was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectedReason {
    /// The command area or the id space is full now; see [`Producer::wait_room`].
    #[error("the command area is full")]
    Full,
    /// The entry can never fit (larger than half the command area), or has no CDB, or another ring's blocks.
    #[error("the entry is larger than the command area allows")]
    TooLarge,
    /// The ring was found corrupt and is closed.
    #[error("the ring is closed")]
    Closed,
}

/// A command that the consumer has answered; its blocks are the producer's again.
#[derive(Debug)]
pub struct Completion<T> {
    /// The id it had.
    pub id: CommandId,
    /// The request's context.
    pub context: T,
    /// SAM status.
    pub status: u8,
    /// Sense data with CHECK CONDITION.
    pub sense: Option<[u8; 96]>,
    /// Bytes the command transfers by its CDB when that is not the whole buffer: less is an underflow, more (this
    /// producer accepts it, the kernel ignores it) an overflow. Carried in `rsp.read_len` with `READ_LEN`.
    pub transfer: Option<u32>,
    /// The consumer does not know this kind of entry.
    pub unknown_op: bool,
    /// The command's blocks; dropping frees them.
    pub data: Extent,
}

/// Figures of one LUN. Bytes where not said otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct AreaUsage {
    /// Size of the data area.
    pub data_area: u64,
    /// Data-area bytes backed by memory.
    pub backed: u64,
    /// Data-area bytes held by commands.
    pub in_use: u64,
    /// Command-area bytes backed by memory.
    pub command_area_backed: u64,
    /// Commands in flight (count).
    pub in_flight: usize,
    /// Waiting allocations (count).
    pub waiting: usize,
}

impl<T: Send> Producer<T> {
    /// The pool that the ring takes its memory from.
    pub fn pool(&self) -> &Pool {
        self.shared.area.pool()
    }

    /// Bytes of one block: what extents are made of, and where [`Extent::append`] can join them.
    pub fn block(&self) -> usize {
        self.shared.area.block()
    }

    /// Blocks for `len` bytes, now or not at all. Contents are undefined to the caller but never another LUN's.
    pub fn try_allocate(&self, len: usize) -> Result<Extent, AllocateError> {
        self.shared.area.try_allocate(len)
    }

    /// Like [`Self::try_allocate`], paid from a reserve: succeeds whenever the area itself has room.
    pub fn allocate_from(&self, reserve: &mut Reserve, len: usize) -> Result<Extent, AllocateError> {
        self.shared.area.allocate_from(reserve, len)
    }

    /// Waits for blocks, FIFO within this LUN and fair between LUNs. Dropping the future gives up the place.
    pub fn allocate(&self, len: usize) -> Allocate {
        Allocate::new(Arc::clone(&self.shared.area), len)
    }

    /// Writes one entry; it is seen by the consumer after [`Self::publish`].
    pub fn push(&self, request: Request<'_, T>) -> Result<CommandId, Rejected<T>> {
        let Request { cdb, nexus, data, context } = request;
        let pieces: SmallVec<[(usize, usize); 4]> = data.ranges(0..data.len()).collect();
        let cdb_at = command::SIZE.max(command::IOV + pieces.len() * command::IOV_SIZE);
        let len = (cdb_at + cdb.len()).next_multiple_of(8);
        let mut state = self.shared.lock();
        let whole =
            (1..=260).contains(&cdb.len()) && len <= state.cursor.longest() && data.is_of(&self.shared.area);
        let reason = match (state.closed, whole) {
            (true, _) => Some(RejectedReason::Closed),
            (false, false) => Some(RejectedReason::TooLarge),
            (false, true) => None,
        };
        if let Some(reason) = reason {
            return Err(Rejected { reason, data, context });
        }
        let placed = state.free_id().and_then(|id| Some((id, state.cursor.place(len, true)?)));
        let Some((id, at)) = placed else {
            return Err(Rejected { reason: RejectedReason::Full, data, context });
        };
        state.take_id(id, InFlight { context, data });
        state.cursor.write_header(at, len, header::OP_CMD, id);
        self.shared.write_request(at, cdb_at, &pieces, nexus, cdb);
        self.shared.area.touch();
        self.shared.area.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    /// Writes a task-management notice for commands in flight; `false` when there is no room now.
    pub fn push_task_management(&self, kind: TaskManagementKind, ids: &[CommandId]) -> bool {
        let len = (task_management::SIZE + ids.len() * 2).next_multiple_of(8);
        let mut state = self.shared.lock();
        if state.closed || len > state.cursor.longest() {
            return false;
        }
        let Some(at) = state.cursor.place(len, false) else { return false };
        state.cursor.write_header(at, len, header::OP_TMR, 0);
        let mut body = vec![0; len - header::SIZE];
        body[task_management::TYPE - header::SIZE] = kind as u8;
        let count = task_management::CMD_CNT - header::SIZE;
        body[count..count + 4].copy_from_slice(&(ids.len() as u32).to_ne_bytes());
        let list = task_management::CMD_IDS - header::SIZE;
        for (place, id) in body[list..].chunks_exact_mut(2).zip(ids) {
            place.copy_from_slice(&id.to_ne_bytes());
        }
        self.shared.mapping.copy_in(at + header::SIZE, &body);
        true
    }

    /// Publishes everything pushed since the last call (head, Release).
    pub fn publish(&self) -> Kick {
        self.shared.lock().cursor.publish()
    }

    /// Takes every answered command. `Err`: the consumer wrote nonsense; the ring is closed and every command in
    /// flight stays in flight (its blocks may still be written).
    pub fn reap(&self, mut each: impl FnMut(Completion<T>)) -> Result<usize, Corrupt> {
        let mut done = SmallVec::<[Completion<T>; 8]>::new();
        let (result, wakers) = {
            let mut state = self.shared.lock();
            let result = state.reap(&mut done);
            state.closed |= result.is_err();
            let wakers =
                if done.is_empty() && result.is_ok() { Vec::new() } else { std::mem::take(&mut state.room) };
            (result, wakers)
        };
        self.shared.area.in_flight.fetch_sub(done.len(), Ordering::Relaxed);
        let count = done.len();
        done.into_iter().for_each(&mut each);
        wakers.into_iter().for_each(Waker::wake);
        result.map(|()| count)
    }

    /// Registers a waker for when room in the command area may have come up; `false` when there is room already.
    pub fn wait_room(&self, waker: &Waker) -> bool {
        let mut state = self.shared.lock();
        // Only an answer makes room, and only commands in flight are answered.
        if state.closed || self.shared.area.in_flight.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if !state.room.iter().any(|known| known.will_wake(waker)) {
            state.room.push(waker.clone());
        }
        true
    }

    /// Figures for status and metrics.
    pub fn usage(&self) -> AreaUsage {
        let (backed, in_use, waiting) = self.shared.area.figures();
        AreaUsage {
            data_area: self.shared.area.size(),
            backed,
            in_use,
            command_area_backed: self.shared.lock().cursor.backed(),
            in_flight: self.shared.area.in_flight.load(Ordering::Relaxed),
            waiting,
        }
    }

    /// Memory behind the whole ring as the system counts it, bytes.
    pub fn resident(&self) -> std::io::Result<u64> {
        self.shared.mapping.resident()
    }

    /// The memfd, to be passed to the process that will consume.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.shared.mapping.fd()
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_request(&self, at: usize, cdb_at: usize, pieces: &[(usize, usize)], nexus: Nexus, cdb: &[u8]) {
        let word32 =
            |offset: usize, value: u32| self.mapping.word32(at + offset).store(value, Ordering::Relaxed);
        let word64 =
            |offset: usize, value: u64| self.mapping.word64(at + offset).store(value, Ordering::Relaxed);
        word32(command::IOV_CNT, pieces.len() as u32);
        word32(command::IOV_BIDI_CNT, 0);
        word32(command::IOV_DIF_CNT, 0);
        word64(command::CDB_OFF, (at + cdb_at) as u64);
        word64(command::NEXUS, nexus.0);
        word64(command::NEXUS + 8, 0);
        for (index, (offset, len)) in pieces.iter().enumerate() {
            word64(command::IOV + index * command::IOV_SIZE, *offset as u64);
            word64(command::IOV + index * command::IOV_SIZE + 8, *len as u64);
        }
        // Rounded up with zeros: a longer CDB of an earlier entry must not show through.
        let mut padded = SmallVec::<[u8; 32]>::from_slice(cdb);
        padded.resize(cdb.len().next_multiple_of(8), 0);
        self.mapping.copy_in(at + cdb_at, &padded);
    }
}

impl<T: Send> IdleCommands for Shared<T> {
    fn shrink(&self) -> u64 {
        self.lock().cursor.shrink()
    }
}

impl<T> State<T> {
    fn free_id(&self) -> Option<u16> {
        self.free.last().copied().or_else(|| u16::try_from(self.table.len() + 1).ok())
    }

    fn take_id(&mut self, id: u16, in_flight: InFlight<T>) {
        match self.table.get_mut(usize::from(id) - 1) {
            Some(place) => {
                self.free.pop();
                *place = Some(in_flight);
            }
            None => self.table.push(Some(in_flight)),
        }
    }

    fn reap(&mut self, done: &mut SmallVec<[Completion<T>; 8]>) -> Result<(), Corrupt> {
        while let Some(Answer { id, flags, body }) = self.cursor.answer()? {
            let place = usize::from(id).checked_sub(1).and_then(|index| self.table.get_mut(index));
            let InFlight { context, data } = place.and_then(Option::take).ok_or(Corrupt::CommandId(id))?;
            self.free.push(id);
            let status = body[command::SCSI_STATUS - header::SIZE];
            let sense = command::SENSE - header::SIZE;
            let mut bytes = [0; command::SENSE_SIZE];
            bytes.copy_from_slice(&body[sense..sense + command::SENSE_SIZE]);
            let at = command::READ_LEN - header::SIZE;
            let read_len = u32::from_ne_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
            done.push(Completion {
                id,
                context,
                status,
                sense: (status == 2).then_some(bytes),
                transfer: (flags & header::UFLAG_READ_LEN != 0).then_some(read_len),
                unknown_op: flags & header::UFLAG_UNKNOWN_OP != 0,
                data,
            });
        }
        Ok(())
    }
}
