//! Generic netlink messages of the family TCM-USER, as bytes. Pure.
//!
//! ```text
//! nlmsghdr    u32 length │ u16 type (the family's number) │ u16 flags │ u32 sequence │ u32 port
//! genlmsghdr  u8 command │ u8 version │ u16 reserved
//! attributes  u16 length │ u16 type │ value, padded to 4 bytes        …
//! ```
//!
//! Names and numbers are those of the kernel's headers (`linux/netlink.h`, `linux/genetlink.h`,
//! `linux/target_core_user.h`). Numbers are in the machine's byte order. What comes in is the kernel's, and is checked all
//! the same: a message that does not fit its own lengths is passed over.

/// Of netlink's and generic netlink's headers together.
const HEADERS: usize = 20;
/// Number of the controller's family, `GENL_ID_CTRL`.
const CONTROLLER: u16 = 0x10;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const REQUEST: u16 = 0x1 | 0x4;
/// `NLMSG_ERROR`: an answer with an errno, 0 for none.
const ERROR: u16 = 2;
/// Flags of an attribute's type: nested, network byte order.
const TYPE_FLAGS: u16 = 0xC000;

/// Name of the family.
pub(super) const FAMILY: &str = "TCM-USER";
/// Name of its multicast group.
pub(super) const GROUP: &str = "config";
/// Version of the family.
const VERSION: u8 = 2;

/// `enum tcmu_genl_cmd`.
mod command {
    pub(super) const ADDED: u8 = 1;
    pub(super) const REMOVED: u8 = 2;
    pub(super) const RECONFIG: u8 = 3;
    pub(super) const ADDED_DONE: u8 = 4;
    pub(super) const REMOVED_DONE: u8 = 5;
    pub(super) const RECONFIG_DONE: u8 = 6;
    pub(super) const SET_FEATURES: u8 = 7;
}

/// `enum tcmu_genl_attr`.
mod attribute {
    pub(super) const DEVICE: u16 = 1;
    pub(super) const MINOR: u16 = 2;
    pub(super) const DEV_CFG: u16 = 4;
    pub(super) const DEV_SIZE: u16 = 5;
    pub(super) const WRITECACHE: u16 = 6;
    pub(super) const CMD_STATUS: u16 = 7;
    pub(super) const DEVICE_ID: u16 = 8;
    pub(super) const SUPP_KERN_CMD_REPLY: u16 = 9;
}

/// What the kernel tells of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// Name of its uio device, `tcm-user/HBA/NAME/CONFIG`.
    pub device: String,
    /// N of `/dev/uioN`.
    pub minor: u32,
    /// What an answer names it by; older kernels, which wait for no answer, have none.
    pub id: Option<u32>,
}

/// What can happen to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It was enabled.
    Added,
    /// It is being removed.
    Removed,
    /// Something about it is to be changed.
    Reconfigured(Change),
}

/// What is to be changed about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its `dev_config`.
    Config(String),
    /// Its size, bytes.
    Size(u64),
    /// Whether it says that it has a volatile cache.
    WriteCache(bool),
    /// Something that this program does not know.
    Unknown,
}

/// The family's numbers on this machine, which the kernel gives out anew at each boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Of the family: the type of its messages.
    pub(super) family: u16,
    /// Of the multicast group.
    pub(super) group: u32,
}

/// One message out of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// The family, or [`ERROR`].
    kind: u16,
    /// Everything behind the netlink header.
    body: &'a [u8],
}

/// The messages in a datagram, up to the first one that does not fit.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(datagram, 0)? as usize;
        let (kind, body) = (u16_at(datagram, 4)?, datagram.get(16..length)?);
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message { kind, body })
    })
}

impl Message<'_> {
    /// The errno of an answer; 0: none. `None` when it is no answer.
    pub(super) fn errno(&self) -> Option<i32> {
        (self.kind == ERROR).then(|| u32_at(self.body, 0).map(|word| -word.cast_signed())).flatten()
    }

    /// What it says of a device, if it is of this family and says something.
    pub(super) fn event(&self, family: u16) -> Option<Event> {
        if self.kind != family {
            return None;
        }
        let mut found = Event { kind: Kind::Added, device: String::new(), minor: 0, id: None };
        let mut change = Change::Unknown;
        for (kind, value) in attributes(self.body.get(4..)?) {
            match kind {
                attribute::DEVICE => found.device = text(value),
                attribute::MINOR => found.minor = u32_at(value, 0)?,
                attribute::DEVICE_ID => found.id = Some(u32_at(value, 0)?),
                attribute::DEV_CFG => change = Change::Config(text(value)),
                attribute::DEV_SIZE => {
                    change = Change::Size(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?));
                }
                attribute::WRITECACHE => change = Change::WriteCache(*value.first()? != 0),
                _ => {}
            }
        }
        found.kind = match *self.body.first()? {
            command::ADDED => Kind::Added,
            command::REMOVED => Kind::Removed,
            command::RECONFIG => Kind::Reconfigured(change),
            _ => return None,
        };
        Some(found)
    }

    /// The numbers in the controller's answer to [`find_family`].
    pub(super) fn numbers(&self) -> Option<Numbers> {
        const FAMILY_ID: u16 = 1;
        const GROUPS: u16 = 7;
        const GROUP_NAME: u16 = 1;
        const GROUP_ID: u16 = 2;
        if self.kind != CONTROLLER {
            return None;
        }
        let mut numbers = Numbers { family: 0, group: 0 };
        for (kind, value) in attributes(self.body.get(4..)?) {
            match kind {
                FAMILY_ID => numbers.family = u16_at(value, 0)?,
                GROUPS => {
                    for (_, group) in attributes(value) {
                        let find = |wanted| attributes(group).find(|(kind, _)| *kind == wanted);
                        if find(GROUP_NAME).is_some_and(|(_, name)| text(name) == GROUP) {
                            numbers.group = find(GROUP_ID).and_then(|(_, id)| u32_at(id, 0))?;
                        }
                    }
                }
                _ => {}
            }
        }
        (numbers.family != 0 && numbers.group != 0).then_some(numbers)
    }
}

/// Asks the controller for the family's numbers.
pub(super) fn find_family() -> Vec<u8> {
    const GET_FAMILY: u8 = 3;
    const FAMILY_NAME: u16 = 2;
    let mut name = FAMILY.as_bytes().to_vec();
    name.push(0);
    request(CONTROLLER, GET_FAMILY, 1, &[(FAMILY_NAME, &name)])
}

/// Says whether the kernel shall wait for answers to its events.
pub(super) fn set_features(family: u16, replies: bool) -> Vec<u8> {
    request(family, command::SET_FEATURES, VERSION, &[(attribute::SUPP_KERN_CMD_REPLY, &[u8::from(replies)])])
}

/// Answers an event; `None` when the kernel does not wait for one. `status`: 0, or a negative errno.
pub(super) fn done(family: u16, event: &Event, status: i32) -> Option<Vec<u8>> {
    let command = match event.kind {
        Kind::Added => command::ADDED_DONE,
        Kind::Removed => command::REMOVED_DONE,
        Kind::Reconfigured(_) => command::RECONFIG_DONE,
    };
    let (status, id) = (status.to_ne_bytes(), event.id?.to_ne_bytes());
    let attributes = [(attribute::CMD_STATUS, &status[..]), (attribute::DEVICE_ID, &id[..])];
    Some(request(family, command, VERSION, &attributes))
}

fn request(family: u16, command: u8, version: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; HEADERS];
    for (kind, value) in attributes {
        bytes.extend((value.len() as u16 + 4).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes[4..6].copy_from_slice(&family.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    bytes[16] = command;
    bytes[17] = version;
    bytes
}

/// Type and value of each attribute, up to the first that does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let (kind, value) = (u16_at(bytes, 2)? & !TYPE_FLAGS, bytes.get(4..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Up to the first NUL.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEST_FAMILY: u16 = 0x1F;

    fn parse(bytes: &[u8]) -> Option<Event> {
        messages(bytes).find_map(|message| message.event(TEST_FAMILY))
    }

    fn from_kernel(command: u8, more: &[(u16, &[u8])]) -> Vec<u8> {
        let mut attributes: Vec<(u16, &[u8])> = vec![
            (attribute::DEVICE, b"tcm-user/3720/vm1/rbdgate/rbd:rbd/vm1\0"),
            (attribute::MINOR, &[3, 0, 0, 0]),
            (attribute::DEVICE_ID, &[9, 0, 0, 0]),
        ];
        attributes.extend_from_slice(more);
        request(TEST_FAMILY, command, VERSION, &attributes)
    }

    #[test]
    fn events_of_the_kernel_are_understood() {
        let added = parse(&from_kernel(command::ADDED, &[])).unwrap();
        assert_eq!(added.kind, Kind::Added);
        assert_eq!(added.device, "tcm-user/3720/vm1/rbdgate/rbd:rbd/vm1");
        assert_eq!((added.minor, added.id), (3, Some(9)));
        let size = (10u64 << 30).to_ne_bytes();
        let resized = parse(&from_kernel(command::RECONFIG, &[(attribute::DEV_SIZE, &size)])).unwrap();
        assert_eq!(resized.kind, Kind::Reconfigured(Change::Size(10 << 30)));
        let cache = parse(&from_kernel(command::RECONFIG, &[(attribute::WRITECACHE, &[1])])).unwrap();
        assert_eq!(cache.kind, Kind::Reconfigured(Change::WriteCache(true)));
        let strange = parse(&from_kernel(command::RECONFIG, &[])).unwrap();
        assert_eq!(strange.kind, Kind::Reconfigured(Change::Unknown));
        assert_eq!(parse(&from_kernel(command::REMOVED, &[])).unwrap().kind, Kind::Removed);
    }

    #[test]
    fn an_answer_names_the_device_and_the_status() {
        let event = parse(&from_kernel(command::ADDED, &[])).unwrap();
        let answer = done(TEST_FAMILY, &event, -libc::ENOENT).unwrap();
        assert_eq!(answer[16], command::ADDED_DONE);
        let found: Vec<_> = attributes(&answer[HEADERS..]).collect();
        assert_eq!(found[0], (attribute::CMD_STATUS, &(-libc::ENOENT).to_ne_bytes()[..]));
        assert_eq!(found[1], (attribute::DEVICE_ID, &9u32.to_ne_bytes()[..]));
        assert_eq!(done(TEST_FAMILY, &Event { id: None, ..event }, 0), None, "the kernel does not wait");
    }

    #[test]
    fn the_controllers_answer_names_family_and_group() {
        let group = |name: &[u8], id: u8| {
            let mut bytes = Vec::new();
            for (kind, value) in [(1u16, name), (2, &[id, 0, 0, 0][..])] {
                bytes.extend((value.len() as u16 + 4).to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend_from_slice(value);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            let mut nested = (bytes.len() as u16 + 4).to_ne_bytes().to_vec();
            nested.extend(1u16.to_ne_bytes());
            nested.extend(bytes);
            nested
        };
        let groups = [group(b"other\0", 7), group(b"config\0", 12)].concat();
        let answer = request(CONTROLLER, 1, 2, &[(2, b"TCM-USER\0"), (1, &[0x1F, 0]), (7 | 0x8000, &groups)]);
        let numbers = messages(&answer).find_map(|message| message.numbers());
        assert_eq!(numbers, Some(Numbers { family: 0x1F, group: 12 }));
    }

    #[test]
    fn an_errno_is_told_from_an_event() {
        let mut bytes = vec![0; 36];
        bytes[..4].copy_from_slice(&36u32.to_ne_bytes());
        bytes[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        let message = messages(&bytes).next().unwrap();
        assert_eq!(message.errno(), Some(libc::EPERM));
        assert_eq!(message.event(TEST_FAMILY), None);
    }

    proptest! {
        #[test]
        fn no_datagram_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                let _ = (message.errno(), message.event(message.kind), message.numbers());
            }
        }

        #[test]
        fn a_cut_message_is_no_event_with_other_content(at in 0usize..100) {
            let whole = from_kernel(command::RECONFIG, &[(attribute::DEV_SIZE, &7u64.to_ne_bytes())]);
            let cut = &whole[..at.min(whole.len() - 1)];
            prop_assert_eq!(parse(cut), None);
        }
    }
}
