//! Lanes behind a kernel's ring (a simulated one: odd size, fillers, buffers with old bytes, no nexus), and what becomes of
//! commands when one process follows another.

mod succession;
mod traffic;

use std::sync::Arc;
use std::time::Duration;

use rbdgate::cluster::reservations::Memory as NoReservations;
use rbdgate::disk::Disk;
use rbdgate::lane::Lane;
use rbdgate::lane::kernel::{self, Actions, Adopted, Outstanding, Served};
use rbdgate::nexus::Table;
use rbdgate::reactor::Reactors;
use rbdgate::scsi::{Identity, Settings, Unit};
use ring::uio;
use ring::uio::simulated::{Answer, BLOCK, Data, Kernel};

const PATIENCE: Duration = Duration::from_secs(60);
const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const TASK_ABORTED: u8 = 0x40;

/// A ring of a size that nothing divides, with room for about 30 commands.
const RING: u32 = 4088;

struct Switches(Arc<Kernel>);

impl Actions for Switches {
    fn set_blocked(&self, blocked: bool) -> std::io::Result<()> {
        self.0.set_blocked(blocked);
        Ok(())
    }

    fn reset_ring(&self, outstanding: Outstanding) -> std::io::Result<()> {
        self.0.reset_ring(outstanding as u8);
        Ok(())
    }
}

fn machine(blocks: usize) -> Arc<Kernel> {
    let identity = uio::Identity::parse("tcm-user/0/test/rbdgate/test").unwrap();
    Kernel::new(identity, RING, blocks).unwrap()
}

/// Waits until the last process has let go of the device.
fn adopt(kernel: &Arc<Kernel>) -> Adopted {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        match kernel.claim() {
            Ok(claimed) => {
                return kernel::take(claimed, Arc::new(Switches(Arc::clone(kernel)))).unwrap();
            }
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn unit(disk: &Arc<dyn Disk>, reservations: bool) -> Unit {
    let identity = Identity::from_serial("kernel");
    let settings = Settings::default();
    Unit::new(identity, disk.geometry().clone(), disk.size(), Table::new(), settings)
        .behind_kernel(reservations)
}

fn serve(kernel: &Arc<Kernel>, reactors: &Reactors, disk: &Arc<dyn Disk>) -> Lane {
    let served = Served {
        name: "test".into(),
        unit: unit(disk, true),
        disk: Arc::clone(disk),
        reservations: NoReservations::new(),
    };
    adopt(kernel).serve(&reactors.all()[0], served).unwrap()
}

fn end(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

/// READ(10) or WRITE(10) of 512-byte blocks.
fn transfer(code: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [code, 0, a, b, c, d, 0, e, f, 0]
}

fn write(kernel: &Kernel, lba: u32, bytes: Vec<u8>) -> u64 {
    let blocks = u16::try_from(bytes.len() / 512).unwrap();
    kernel.send(&transfer(0x2a, lba, blocks), Data::Out(bytes))
}

fn read(kernel: &Kernel, lba: u32, blocks: u16) -> u64 {
    kernel.send(&transfer(0x28, lba, blocks), Data::In(usize::from(blocks) * 512))
}

fn answer(kernel: &Kernel, tag: u64) -> Answer {
    kernel.wait(tag, PATIENCE).expect("an answer within a minute")
}

fn status(kernel: &Kernel, tag: u64) -> u8 {
    answer(kernel, tag).status
}
