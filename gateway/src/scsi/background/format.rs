//! FORMAT UNIT (SBC-4): every block reads as zeros afterwards, deallocated on a thin store; or holds the initialization
//! pattern, where one is given. The block length stays, and there are no defect lists and no protection information.

use super::plan::{Kind, Overwrite, Plan};
use super::sanitize::repeat;
use super::{Request, begin};
use crate::scsi::device::{Answer, Device};
use crate::scsi::sense::{self, Sense};

/// What the parameter list asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    immediate: bool,
    /// One logical block; `None`: the default pattern, zeros.
    pattern: Option<Vec<u8>>,
    /// Bytes of the list.
    len: usize,
}

/// FORMAT UNIT.
pub(in crate::scsi) fn format_unit(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let with_list = cdb.bit(1, 0x10);
    // SBC-4: without a parameter list LONGLIST, CMPLST and DEFECT LIST FORMAT say nothing.
    let list = if with_list {
        let block = device.block_size() as usize;
        let bytes = request.parameter_list(usize::MAX, 8 + 4 + block);
        parse(&bytes, cdb.bit(1, 0x20), block)?
    } else {
        List::default()
    };
    device.background.abort_test(sense::FORMAT_IN_PROGRESS);
    let overwrite = list.pattern.map(|block| Overwrite { block, count: 1, invert: false });
    begin(device, Plan { kind: Kind::Format, overwrite }, list.immediate, list.len)
}

/// Short and long parameter list header, then the initialization pattern descriptor.
fn parse(list: &[u8], long: bool, block: usize) -> Result<List, Sense> {
    const FOV: u8 = 0x80;
    /// DPRY, DCRT and STPF are met as they are: there is no primary list, nothing is certified, nothing stops.
    const OPTIONS: u8 = 0x40 | 0x20 | 0x10;
    const IP: u8 = 0x08;
    const IMMED: u8 = 0x02;
    let wrong = |byte: usize| Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(byte as u16));
    let (header, rest) =
        list.split_at_checked(if long { 8 } else { 4 }).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    // PROTECTION FIELD USAGE; P_I_INFORMATION and PROTECTION INTERVAL EXPONENT.
    if header[0] & 0x07 != 0 {
        return wrong(0);
    }
    if long && header[3] != 0 {
        return wrong(3);
    }
    let flags = header[1];
    if flags & FOV == 0 && flags & (OPTIONS | IP) != 0 {
        return wrong(1);
    }
    // DEFECT LIST LENGTH: there is nothing that could be reassigned.
    let defects = if long { 4 } else { 2 };
    if header[defects..].iter().any(|byte| *byte != 0) {
        return wrong(defects);
    }
    let immediate = flags & IMMED != 0;
    if flags & IP == 0 {
        return Ok(List { immediate, pattern: None, len: header.len() });
    }
    let (&[modifier, kind, high, low], rest) =
        rest.split_first_chunk::<4>().ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    // SI asks for what SANITIZE does; IP MODIFIER is obsolete.
    if modifier != 0 {
        return wrong(header.len());
    }
    let pattern = match kind {
        0x00 if length == 0 => None,
        0x01 if (1..=block).contains(&length) => {
            Some(repeat(rest.get(..length).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?, block))
        }
        0x00 | 0x01 => return wrong(header.len() + 2),
        _ => return wrong(header.len() + 1),
    };
    Ok(List { immediate, pattern, len: header.len() + 4 + length })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_parameter_list_is_read_to_its_end_at_most(
            list in prop::collection::vec(any::<u8>(), 0..600),
            long in any::<bool>(),
        ) {
            if let Ok(parsed) = parse(&list, long, 512) {
                prop_assert!(parsed.len <= list.len());
                prop_assert!(parsed.pattern.is_none_or(|pattern| pattern.len() == 512));
            }
        }
    }

    #[test]
    fn options_without_fov_are_an_error_of_the_list() {
        // SBC-4, parameter list header: FOV zero and an option set is an invalid field.
        let pointed = sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(1);
        assert_eq!(parse(&[0, 0x20, 0, 0], false, 512), Err(pointed));
        assert!(parse(&[0, 0xA0, 0, 0], false, 512).is_ok());
    }

    #[test]
    fn a_defect_list_is_refused_in_either_header() {
        let short = sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(2);
        assert_eq!(parse(&[0, 0, 0, 4, 0, 0, 0, 0], false, 512), Err(short));
        let long = sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(4);
        assert_eq!(parse(&[0, 0, 0, 0, 0, 0, 0, 4], true, 512), Err(long));
    }

    #[test]
    fn an_initialization_pattern_fills_whole_blocks() {
        let list = [0, 0x88, 0, 0, 0, 1, 0, 3, 1, 2, 3];
        let parsed = parse(&list, false, 512).unwrap();
        assert_eq!(parsed.len, 11);
        assert_eq!(parsed.pattern.unwrap()[..5], [1, 2, 3, 1, 2]);
    }
}
