//! Taking an image's exclusive lock, from nobody, from the dead, and never from the living.
//!
//! Who has the lock is in the way, unless it is dead. What counts as dead, quickest first:
//!
//! 1. **A predecessor on this host, by its record.** The owner leaves a note in the image's metadata ([`Note`]): its
//!    address, the host's boot, its process. If the note is of the lock's owner, this boot and this PID namespace, and that
//!    process is gone, it is dead, at once (a restart after `kill -9`). In another PID namespace (a restarted container)
//!    nothing is concluded.
//! 2. **A client that no longer watches the image.** Ceph itself has given it up (after `osd_client_watch_timeout`, 30 s).
//! 3. **A client that still watches but does not answer** is only waited for until it answers or 2. holds: a paused or
//!    slow gateway is not fenced for being slow.
//!
//! A client that answers is alive: opening fails and names it. It is not even asked for the lock, because an ordinary
//! librbd client (a virtual machine) would give it away in the middle of its work.
//!
//! The dead are fenced before the lock is broken (ARCHITECTURE section 7): blocklisted, then the newest OSD map awaited,
//! because what they had sent may still be on its way to an OSD.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rbd::{Cluster, Image, Kind, Watcher};

use super::{OpenError, lockable};

/// How long an owner gets to show that it is alive.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a silent owner is waited for: the OSDs' watch timeout and some more.
const EXPIRY: Duration = Duration::from_secs(45);

/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_millis(500);

/// The metadata key of the owner's note.
const KEY: &str = "rbdgate.owner";

/// Takes the lock and leaves a note. Blocks.
pub(super) fn take(image: &Image, cluster: &Cluster) -> Result<(), OpenError> {
    if !lockable(image.features()?) {
        let reason = format!(
            "the image cannot be locked, so a failed gateway could not be kept from writing: enable it (rbd feature \
             enable {} exclusive-lock)",
            image.label()
        );
        return Err(OpenError::Invalid { image: image.label().to_owned(), reason });
    }
    let ours = cluster.address()?;
    make_way(image, &ours)?;
    match image.acquire_lock() {
        Ok(()) => {}
        // Somebody came between.
        Err(error) if matches!(error.kind, Kind::ReadOnly | Kind::Busy) => {
            return Err(match image.lock_owner()? {
                Some(owner) => in_use(image, &owner, &ours),
                None => error.into(),
            });
        }
        Err(error) => return Err(error.into()),
    }
    // Without it a successor has to wait, nothing worse.
    match Note::of_this_process(ours) {
        Some(note) => image.set_metadata(KEY, &note.write())?,
        None => tracing::debug!("/proc does not say which boot and process this is: no note for a successor"),
    }
    Ok(())
}

/// Gives it back, with the note.
pub(super) fn give_back(image: &Image) -> Result<(), rbd::Error> {
    match image.remove_metadata(KEY) {
        Err(error) if error.kind != Kind::NotFound => tracing::debug!("{error}"),
        _ => {}
    }
    image.release_lock()
}

/// Sees to it that nobody has the lock, or says who is alive and has it.
fn make_way(image: &Image, ours: &str) -> Result<(), OpenError> {
    let started = Instant::now();
    let mut said = false;
    while let Some(owner) = image.lock_owner()? {
        if owner == ours {
            return Err(in_use(image, &owner, ours));
        }
        let cause = if predecessor_is_gone(image, &owner)? {
            "its process on this host is gone"
        } else {
            let watchers = image.watchers()?;
            let Some(watcher) = watchers.iter().find(|watcher| watcher.address == owner) else {
                fence(image, &owner, "it no longer watches the image")?;
                continue;
            };
            if image.alive(watcher, ANSWER)? || started.elapsed() > EXPIRY {
                return Err(in_use(image, &owner, ours));
            }
            if !said {
                said = true;
                say_waiting(image, watcher);
            }
            thread::sleep(PAUSE);
            continue;
        };
        fence(image, &owner, cause)?;
    }
    Ok(())
}

fn fence(image: &Image, owner: &str, cause: &str) -> Result<(), OpenError> {
    tracing::warn!(image = image.label(), owner, "fencing the former owner: {cause}");
    match image.fence(owner) {
        // Another successor was quicker and has the lock; the next look finds it.
        Err(error) if error.kind == Kind::Busy => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn say_waiting(image: &Image, watcher: &Watcher) {
    tracing::warn!(
        image = image.label(),
        owner = watcher.address,
        "the image's owner does not answer; waiting until Ceph gives it up, {EXPIRY:?} at most"
    );
}

fn in_use(image: &Image, owner: &str, ours: &str) -> OpenError {
    let host = owner.rsplit_once(':').map_or(owner, |(host, _port)| host);
    let owner = if owner == ours {
        "another disk of this very process".to_owned()
    } else {
        format!("a client on {host} ({owner})")
    };
    OpenError::InUse { image: image.label().to_owned(), owner }
}

/// True when the note is the owner's and says that it was a process of this host which is gone.
fn predecessor_is_gone(image: &Image, owner: &str) -> Result<bool, OpenError> {
    let note = image.metadata(KEY)?.and_then(|text| Note::read(&text));
    Ok(note.is_some_and(|note| note.address == owner && note.is_gone()))
}

/// Who has the lock, for its successor. Numbers of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// The client's; a note of an earlier owner does not count.
    address: String,
    /// `/proc/sys/kernel/random/boot_id`.
    boot: String,
    /// The PID namespace in which `pid` is meant.
    namespace: String,
    pid: i32,
    /// When the process started, clock ticks after boot: a recycled pid is another process.
    started: u64,
}

impl Note {
    fn of_this_process(address: String) -> Option<Self> {
        let pid = i32::try_from(std::process::id()).ok()?;
        let (boot, namespace) = (boot()?, namespace()?);
        Some(Self { address, boot, namespace, pid, started: Process::look(pid)?.started })
    }

    fn write(&self) -> String {
        let Self { address, boot, namespace, pid, started } = self;
        format!("1 {address} {boot} {namespace} {pid} {started}")
    }

    /// `None` for anything that `write` would not write, a later version's notes too.
    fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let ["1", address, boot, namespace, pid, started] = words[..] else { return None };
        Some(Self {
            address: address.to_owned(),
            boot: boot.to_owned(),
            namespace: namespace.to_owned(),
            pid: pid.parse().ok().filter(|pid| *pid > 0)?,
            started: started.parse().ok()?,
        })
    }

    /// True only when it is certain.
    fn is_gone(&self) -> bool {
        if boot().as_ref() != Some(&self.boot) || namespace().as_ref() != Some(&self.namespace) {
            return false;
        }
        match Process::look(self.pid) {
            Some(process) => process.started != self.started || process.is_dead,
            // Hidden from us, or not there: only the kernel's word counts.
            None => {
                let pid = nix::unistd::Pid::from_raw(self.pid);
                nix::sys::signal::kill(pid, None) == Err(nix::errno::Errno::ESRCH)
            }
        }
    }
}

fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned())
}

/// `pid:[4026531836]`.
fn namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
}

/// A process as `/proc` shows it.
struct Process {
    started: u64,
    /// A zombie with no other thread: nothing of it runs any more, it only has not been waited for.
    is_dead: bool,
}

impl Process {
    fn look(pid: i32) -> Option<Self> {
        let (state, started) = parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let zombie = matches!(state, 'Z' | 'X');
        let is_dead =
            zombie && fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|tasks| tasks.count() <= 1);
        Some(Self { started, is_dead })
    }
}

/// State and start time, the fields 3 and 22 of `/proc/PID/stat` (proc(5)). The name in field 2 may contain anything.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_name, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.trim().parse().ok()?;
    Some((state, started))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn note() -> Note {
        Note::of_this_process("127.0.0.1:0/7".into()).unwrap()
    }

    #[test]
    fn a_note_survives_writing_and_reading() {
        assert_eq!(Note::read(&note().write()), Some(note()));
    }

    #[test]
    fn a_note_of_anybody_else_is_not_read() {
        for text in ["", "1", "2 a b c 1 1", "1 a b c 0 1", "1 a b c -1 1", "1 a b c x 1", "1 a b c 1 1 more"]
        {
            assert_eq!(Note::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_living_process_is_not_gone() {
        assert!(!note().is_gone());
    }

    #[test]
    fn a_recycled_pid_is_another_process() {
        assert!(Note { started: note().started + 1, ..note() }.is_gone());
    }

    #[test]
    fn a_killed_process_is_gone_waited_for_or_not() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let theirs = Note { pid, started: Process::look(pid).unwrap().started, ..note() };
        assert!(!theirs.is_gone());
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !theirs.is_gone() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert!(theirs.is_gone());
    }

    #[test]
    fn nothing_is_concluded_about_another_boot_or_namespace() {
        let dead = Note { started: note().started + 1, ..note() };
        assert!(!Note { boot: "another".into(), ..dead.clone() }.is_gone());
        assert!(!Note { namespace: "pid:[1]".into(), ..dead }.is_gone());
    }

    #[test]
    fn a_process_may_be_called_anything() {
        let stat = "42 (a) b) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(parse_stat(stat), Some(('Z', 777)));
        assert_eq!(parse_stat("42 (a"), None);
        assert_eq!(parse_stat("42 (a) S 1 2"), None);
    }
}
