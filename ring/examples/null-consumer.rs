//! The floor of the kernel's ring: a disk behind `target_core_user` whose commands are all answered at once.
//!
//! ```text
//! null-consumer IDENTITY BYTES [memory]      IDENTITY as in /sys/class/uio/uioN/name: tcm-user/0/null/anything
//! ```
//!
//! READ and WRITE are answered without touching a byte, so that what remains of the cost of a command is the kernel's, the
//! ring's and the two wake-ups. With `memory` the bytes are kept, so that an initiator can verify them: that shows the
//! consumer right on a real kernel's ring. Blocks are of 512 bytes. Ends when the device is removed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::process::ExitCode;
use std::time::Duration;

use ring::uio::{Device, Events, Identity, Tree};
use ring::{Command, Consumer, Entry, Kick, NextError, Response};

/// Bytes of a logical block.
const BLOCK: u64 = 512;
/// SPC-4 "Sense data", fixed format: ILLEGAL REQUEST with a code of its own.
const fn illegal_request(asc: u8) -> [u8; 18] {
    [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, 0, 0, 0, 0, 0]
}
/// INVALID COMMAND OPERATION CODE.
const INVALID_OPCODE: u8 = 0x20;
/// LOGICAL BLOCK ADDRESS OUT OF RANGE.
const OUT_OF_RANGE: u8 = 0x21;
/// INVALID FIELD IN CDB.
const INVALID_FIELD: u8 = 0x24;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [identity, bytes] => Identity::parse(identity).zip(bytes.parse().ok()).map(|found| (found, false)),
        [identity, bytes, "memory"] => {
            Identity::parse(identity).zip(bytes.parse().ok()).map(|found| (found, true))
        }
        _ => None,
    };
    let Some(((identity, bytes), keeps)) = parsed.filter(|((_, bytes), _)| *bytes >= BLOCK) else {
        eprintln!("usage: null-consumer tcm-user/HBA/NAME[/CONFIG] BYTES [memory]");
        return ExitCode::from(64);
    };
    match serve(&identity, Disk::new(bytes, keeps)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("null-consumer: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += ": ";
        text += &next.to_string();
        cause = next.source();
    }
    text
}

fn serve(identity: &Identity, mut disk: Disk) -> Result<(), Box<dyn std::error::Error>> {
    let (device, mut consumer) = Tree::system().find(identity)?.open()?;
    println!("uio{} is {}; capabilities {:#x}", device.number(), device.identity(), consumer.capabilities());
    loop {
        drain(&device, &mut consumer, &mut disk)?;
        if device.wait(Duration::from_secs(3600)) == Events::Gone {
            return Ok(());
        }
    }
}

/// Answers what is in the ring; rings once for all of it.
fn drain(device: &Device, consumer: &mut Consumer, disk: &mut Disk) -> Result<(), NextError> {
    loop {
        match consumer.next() {
            Ok(Entry::Command(command)) => {
                let response = disk.execute(&command);
                consumer.complete(command, response);
            }
            // Every command is answered within this call: there is none left to end.
            Ok(Entry::TaskManagement(_)) => {}
            Err(NextError::Empty) => break,
            Err(corrupt) => return Err(corrupt),
        }
    }
    if consumer.commit() == Kick::Needed {
        let _ = device.kick();
    }
    Ok(())
}

/// The disk: its size, and its bytes if it keeps them.
struct Disk {
    blocks: u64,
    bytes: Option<Vec<u8>>,
}

impl Disk {
    fn new(bytes: u64, keeps: bool) -> Self {
        let kept = || vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        Self { blocks: bytes / BLOCK, bytes: keeps.then(kept) }
    }

    fn execute(&mut self, command: &Command) -> Response {
        let cdb: [u8; 16] = std::array::from_fn(|at| command.cdb().get(at).copied().unwrap_or(0));
        let wide = |at: usize| u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]);
        let short = |at: usize| u32::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
        match cdb[0] {
            // TEST UNIT READY, START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL, SYNCHRONIZE CACHE (10) and (16).
            0x00 | 0x1b | 0x1e | 0x35 | 0x91 => Response::good(),
            0x03 => {
                reply(command, &[0x70, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], u32::from(cdb[4]))
            }
            0x12 => Self::inquiry(command, cdb[1] & 1 != 0, cdb[2], short(3)),
            // MODE SENSE (6) and (10): a header and no page.
            0x1a => reply(command, &[3, 0, 0, 0], u32::from(cdb[4])),
            0x5a => reply(command, &[0, 6, 0, 0, 0, 0, 0, 0], short(7)),
            0x25 => {
                let last = u32::try_from(self.blocks - 1).unwrap_or(u32::MAX);
                reply(command, &[last.to_be_bytes(), 512_u32.to_be_bytes()].concat(), 8)
            }
            0x9e if cdb[1] & 0x1f == 0x10 => {
                let mut data = [0; 32];
                data[..8].copy_from_slice(&(self.blocks - 1).to_be_bytes());
                data[8..12].copy_from_slice(&512_u32.to_be_bytes());
                reply(command, &data, wide(10))
            }
            // READ and WRITE (6), (10), (12), (16).
            code @ (0x08 | 0x0a) => {
                let blocks = if cdb[4] == 0 { 256 } else { u32::from(cdb[4]) };
                self.transfer(command, code == 0x0a, u64::from(wide(0) & 0x001f_ffff), blocks)
            }
            code @ (0x28 | 0x2a) => self.transfer(command, code == 0x2a, u64::from(wide(2)), short(7)),
            code @ (0xa8 | 0xaa) => self.transfer(command, code == 0xaa, u64::from(wide(2)), wide(6)),
            code @ (0x88 | 0x8a) => {
                let address = u64::from(wide(2)) << 32 | u64::from(wide(6));
                self.transfer(command, code == 0x8a, address, wide(10))
            }
            _ => Response::check_condition(&illegal_request(INVALID_OPCODE)),
        }
    }

    fn inquiry(command: &Command, vital: bool, page: u8, allocated: u32) -> Response {
        let standard = b"\0\0\x05\x02\x1f\0\0\x02RBDGATE NULL            0001";
        match (vital, page) {
            (false, _) => reply(command, standard, allocated),
            (true, 0x00) => reply(command, &[0, 0, 0, 2, 0x00, 0x80], allocated),
            (true, 0x80) => reply(command, b"\0\x80\0\x04null", allocated),
            (true, _) => Response::check_condition(&illegal_request(INVALID_FIELD)),
        }
    }

    fn transfer(&mut self, command: &Command, writes: bool, address: u64, blocks: u32) -> Response {
        let end = address.checked_add(u64::from(blocks));
        if end.is_none_or(|end| end > self.blocks) {
            return Response::check_condition(&illegal_request(OUT_OF_RANGE));
        }
        let len = (u64::from(blocks) * BLOCK) as usize;
        if command.data().len() < len {
            return Response::check_condition(&illegal_request(INVALID_FIELD));
        }
        let start = (address * BLOCK) as usize;
        match self.bytes.as_mut().map(|bytes| &mut bytes[start..start + len]) {
            Some(bytes) if writes => command.data().copy_out(0, bytes),
            Some(bytes) => command.data().copy_in(0, bytes),
            None => {}
        }
        Response::good_with(len)
    }
}

/// GOOD with parameter data, cut to the allocation length (SPC-4 "Allocation length").
fn reply(command: &Command, data: &[u8], allocated: u32) -> Response {
    let len = data.len().min(allocated as usize).min(command.data().len());
    command.data().copy_in(0, &data[..len]);
    Response::good_with(len)
}
