//! TransportIDs of iSCSI initiators (SPC-4, TransportID for initiator ports using SCSI over iSCSI).

use super::order::Neighbours;
use super::registry::InitiatorPort;
use crate::names;

/// Bytes of the shortest TransportID.
pub(super) const SHORTEST: usize = 24;
/// Bytes of the longest: a name, `,i,0x`, twelve digits, the null, and padding.
pub(super) const LONGEST: usize = 4 + 244;

/// PROTOCOL IDENTIFIER of iSCSI.
const ISCSI: u8 = 0x5;
/// FORMAT CODE of an initiator port: name and ISID.
const PORT: u8 = 0b01 << 6;
/// What stands between name and ISID.
const SEPARATOR: &str = ",i,0x";

/// What a TransportID says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TransportId {
    /// FORMAT CODE 00b: an initiator device, by its name.
    Device(String),
    /// FORMAT CODE 01b: one of its ports.
    Port(InitiatorPort),
}

impl TransportId {
    /// The initiator port that is meant. A device's name stands for its one port (SPC-4).
    pub(super) fn resolve(self, neighbours: &dyn Neighbours) -> Option<InitiatorPort> {
        match self {
            Self::Device(name) => neighbours.port_of(&name),
            Self::Port(port) => Some(port),
        }
    }
}

/// The TransportID of an initiator port: name and ISID, the null and padding to a multiple of four, at least 20 bytes.
pub(super) fn encode(port: &InitiatorPort) -> Vec<u8> {
    let isid: String = port.isid.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut id = vec![PORT | ISCSI, 0, 0, 0];
    id.extend_from_slice(format!("{}{SEPARATOR}{isid}\0", port.name).as_bytes());
    id.resize(id.len().next_multiple_of(4).max(SHORTEST), 0);
    let [high, low] = ((id.len() - 4) as u16).to_be_bytes();
    (id[2], id[3]) = (high, low);
    id
}

/// The first TransportID of a list, and its length; `None` when it is none that an iSCSI initiator can have.
pub(super) fn decode(list: &[u8]) -> Option<(TransportId, usize)> {
    let (head, rest) = list.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if length < SHORTEST - 4 || !length.is_multiple_of(4) {
        return None;
    }
    let text = rest.get(..length)?;
    // Null-terminated, null-padded.
    let end = text.iter().position(|byte| *byte == 0)?;
    let (text, padding) = text.split_at(end);
    if padding.iter().any(|byte| *byte != 0) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let id = match head[0] {
        code if code == ISCSI => TransportId::Device(names::normalize(text).ok()?),
        code if code == PORT | ISCSI => {
            let (name, isid) = text.split_once(",i,")?;
            let digits = isid.strip_prefix("0x").or_else(|| isid.strip_prefix("0X"))?;
            TransportId::Port(InitiatorPort {
                name: names::normalize(name).ok()?,
                isid: hexadecimal(digits)?,
            })
        }
        _ => return None,
    };
    Some((id, 4 + length))
}

/// An ISID from its digits; leading zeros may be left out.
pub(super) fn hexadecimal(digits: &str) -> Option<[u8; 6]> {
    let plain = (1..=12).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| plain)?;
    let [_, _, isid @ ..] = number.to_be_bytes();
    Some(isid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "iqn.2026-01.example:host";

    fn padded(format: u8, text: &str) -> Vec<u8> {
        let mut id = vec![format, 0, 0, 0];
        id.extend_from_slice(text.as_bytes());
        id.push(0);
        id.resize(id.len().next_multiple_of(4).max(SHORTEST), 0);
        id[3] = (id.len() - 4) as u8;
        id
    }

    #[test]
    fn both_formats_are_read() {
        let device = padded(0x05, "IQN.2026-01.example:Host");
        assert_eq!(decode(&device), Some((TransportId::Device(NAME.into()), device.len())));
        let port = padded(0x45, &format!("{NAME},i,0x00023D000003"));
        let expected = InitiatorPort { name: NAME.into(), isid: [0, 2, 0x3D, 0, 0, 3] };
        assert_eq!(decode(&port), Some((TransportId::Port(expected), port.len())));
        let short = padded(0x45, &format!("{NAME},i,0x1"));
        let expected = InitiatorPort { name: NAME.into(), isid: [0, 0, 0, 0, 0, 1] };
        assert_eq!(decode(&short), Some((TransportId::Port(expected), short.len())));
    }

    #[test]
    fn what_no_iscsi_initiator_can_be_called_is_refused() {
        for (format, text) in [
            (0x00, NAME),
            (0x06, NAME),
            (0x85, NAME),
            (0x05, "host"),
            (0x45, NAME),
            (0x45, "iqn.2026-01.example:host,i,0x"),
            (0x45, "iqn.2026-01.example:host,i,0x+1"),
            (0x45, "iqn.2026-01.example:host,i,0x1234567890123"),
            (0x45, "iqn.2026-01.example:host,t,0x1"),
        ] {
            assert_eq!(decode(&padded(format, text)), None, "{format:02x} {text}");
        }
        let mut unpadded = padded(0x05, NAME);
        *unpadded.last_mut().unwrap() = 1;
        assert_eq!(decode(&unpadded), None);
        let mut long = padded(0x05, NAME);
        long[3] += 4;
        assert_eq!(decode(&long), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(name in "iqn\\.2026-01\\.[a-z]{1,200}", isid in any::<[u8; 6]>()) {
            let port = InitiatorPort { name, isid };
            let id = encode(&port);
            prop_assert!(id.len() <= LONGEST && id.len() >= SHORTEST && id.len().is_multiple_of(4));
            prop_assert_eq!(decode(&id), Some((TransportId::Port(port), id.len())));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
