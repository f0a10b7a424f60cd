//! Reservations from one run of the program to the next.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rbdgate::scsi::status::RESERVATION_CONFLICT;

use crate::kit::initiator::Initiator;
use crate::kit::{TARGET, pattern, write10};

const APTPL: u8 = 1;
const WRITE_EXCLUSIVE: u8 = 1;

/// The program, ended when dropped.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program on a file disk in `folder`.
fn serve(folder: &Path, listen: SocketAddr) -> Gateway {
    let file = folder.join("rbdgate.yaml");
    let text = format!(
        "listen: [\"{listen}\"]\nstate: state\nadmin: {{ control: control.sock }}\n\
         disks:\n  one: {{ serial: \"disk/1\", file: {{ path: one.img, size: 1MiB }} }}\n  \
         two: {{ file: {{ path: two.img, size: 1MiB }} }}\n\
         targets:\n  - {{ name: \"{TARGET}\", open: true, luns: {{ 0: one, 1: two }} }}\n"
    );
    fs::write(&file, text).unwrap();
    let log = fs::File::create(folder.join("log")).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_rbdgate"))
        .args(["serve", "--config"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let gateway = Gateway(child);
    let deadline = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(listen).is_err() {
        let log = fs::read_to_string(folder.join("log")).unwrap();
        assert!(Instant::now() < deadline, "the gateway does not come up: {log}");
        std::thread::sleep(Duration::from_millis(20));
    }
    gateway
}

fn host(listen: SocketAddr, isid: u8) -> Initiator {
    let mut host = Initiator::connect(listen);
    host.isid[5] = isid;
    host.log_in(TARGET, &[]);
    host.read(&[0; 6], 0);
    host
}

fn order(host: &mut Initiator, action: u8, kind: u8, keys: (u64, u64), flags: u8) {
    let mut list = keys.0.to_be_bytes().to_vec();
    list.extend(keys.1.to_be_bytes());
    list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
    let answer = host.write(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list, 24);
    assert_eq!(answer.status, 0, "{:?}", answer.sense());
}

fn write_status(host: &mut Initiator) -> u8 {
    host.write(&write10(0, 1), &pattern(7, 512), 512).status
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_reservation_survives_a_crash_if_it_was_made_to() {
    // SPC-4, Preserving persistent reservations and registrations: APTPL one and zero.
    for flags in [APTPL, 0] {
        let folder = tempfile::tempdir().unwrap();
        let listen = free_address();
        let gateway = serve(folder.path(), listen);
        let mut one = host(listen, 1);
        order(&mut one, 0, 0, (0, 0x5EC), flags);
        order(&mut one, 1, WRITE_EXCLUSIVE, (0x5EC, 0), 0);
        // Killed as it stands: what was answered is there.
        drop(gateway);
        let _gateway = serve(folder.path(), listen);
        let (mut one, mut two) = (host(listen, 1), host(listen, 2));
        let reservation = two.read(&[0x5E, 1, 0, 0, 0, 0, 0, 0, 64, 0], 64).data;
        let expected = if flags == APTPL { 24 } else { 8 };
        assert_eq!((reservation.len(), &reservation[..4]), (expected, &[0; 4][..]), "PRGENERATION is zero");
        assert_eq!(write_status(&mut one), 0);
        assert_eq!(write_status(&mut two) == RESERVATION_CONFLICT, flags == APTPL);
    }
}

#[test]
fn a_disk_whose_reservations_are_damaged_is_not_served_and_the_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let listen = free_address();
    let gateway = serve(folder.path(), listen);
    order(&mut host(listen, 1), 0, 0, (0, 1), APTPL);
    drop(gateway);
    let file = folder.path().join("state/disk%2F1.reservations");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let _gateway = serve(folder.path(), listen);
    let mut host = host(listen, 1);
    let list = host.read(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], 64).data;
    assert_eq!((list.len(), list[9]), (16, 1), "LUN 1 alone");
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert!(log.contains("disk%2F1.reservations") && log.contains("are damaged"), "{log}");
    assert_eq!(fs::read(&file).unwrap(), &whole[..whole.len() - 1], "it is left for a person to look at");
}
