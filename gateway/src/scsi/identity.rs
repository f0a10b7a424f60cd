//! Who a logical unit says it is.

/// Names of a logical unit. Hosts remember them: they must not change while a disk is in use, nor on an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// T10 VENDOR IDENTIFICATION, at most 8 bytes of printable ASCII.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, at most 16.
    pub product: String,
    /// PRODUCT REVISION LEVEL, at most 4.
    pub revision: String,
    /// Unit serial number (VPD page 80h), at most 64.
    pub serial: String,
    /// The NAA designator (VPD page 83h), IEEE Registered Extended.
    pub naa: [u8; 16],
}

impl Identity {
    /// The identity that the kernel target gives a disk of this serial number: vendor and product that multipath and
    /// claim rules know, and a NAA of the kernel target's company id followed by the serial's first 25 hexadecimal
    /// digits, so that a disk keeps its name when it moves here. A serial with fewer digits (no UUID) is hashed
    /// instead: padding would let two disks share a name.
    pub fn from_serial(serial: impl Into<String>) -> Self {
        let serial = serial.into();
        Self {
            vendor: "LIO-ORG".into(),
            product: "TCMU device".into(),
            revision: "0002".into(),
            naa: naa(&serial),
            serial,
        }
    }

    /// The T10 vendor id designator: vendor and serial number.
    pub(super) fn t10(&self) -> Vec<u8> {
        let mut t10 = vec![0; 8 + self.serial.len().min(64)];
        let (vendor, serial) = t10.split_at_mut(8);
        fill_ascii(vendor, &self.vendor);
        fill_ascii(serial, &self.serial);
        t10
    }
}

/// NAA 6h, company id 001405h, then 25 digits.
fn naa(serial: &str) -> [u8; 16] {
    let mut digits: Vec<u8> =
        serial.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).take(25).collect();
    if digits.len() < 25 {
        let mut hash = fnv1a(serial);
        digits = std::iter::repeat_with(|| {
            let digit = (hash & 0xF) as u8;
            hash >>= 4;
            digit
        })
        .take(25)
        .collect();
    }
    let nibbles: Vec<u8> = [6, 0, 0, 1, 4, 0, 5].into_iter().chain(digits).collect();
    let mut naa = [0; 16];
    for (byte, pair) in naa.iter_mut().zip(nibbles.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    naa
}

/// FNV-1a, 128 bits: fixed for ever, as a disk's name must be.
fn fnv1a(text: &str) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0100_0000_0000_0000_0000_013B;
    text.bytes().fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// Writes text into a fixed ASCII field: left-aligned, space-filled (SPC-4, ASCII data fields), unprintable bytes as
/// underscores.
pub(super) fn fill_ascii(field: &mut [u8], text: &str) {
    field.fill(b' ');
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = if (0x20..=0x7E).contains(&byte) { byte } else { b'_' };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_becomes_the_name_the_kernel_target_gives_it() {
        let identity = Identity::from_serial("8e9a1d6c-12f3-4a5b-9c7d-0123456789ab");
        assert_eq!(identity.naa[..4], [0x60, 0x01, 0x40, 0x58]);
        let hex: String = identity.naa.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "60014058e9a1d6c12f34a5b9c7d01234");
    }

    #[test]
    fn short_serials_do_not_share_a_name_and_keep_theirs() {
        let first = Identity::from_serial("disk1");
        assert_ne!(first.naa, Identity::from_serial("disk2").naa);
        assert_ne!(first.naa, Identity::from_serial("d").naa);
        let hex: String = first.naa.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("6001405"), "{hex}");
        assert_eq!(first, Identity::from_serial("disk1"));
    }

    #[test]
    fn fields_are_padded_cut_and_printable() {
        let mut field = [0; 8];
        fill_ascii(&mut field, "ab\u{7}");
        assert_eq!(&field, b"ab_     ");
        fill_ascii(&mut field, "0123456789");
        assert_eq!(&field, b"01234567");
    }
}
