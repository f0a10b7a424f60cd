//! MODE SENSE, MODE SELECT and the pages (SPC-4 and SBC-3, mode parameters).
//!
//! A page is rendered from the few fields that can change. What MODE SELECT sends is decoded into those fields and rendered
//! again: if that is not what was sent, a bit was set that cannot be changed. The changeable mask is the difference between
//! the page with every field off and with every field on. So the three can not disagree.

use super::cdb::Request;
use super::device::{Answer, Device, Settle, good, parameter_data};
use super::gate::Audience;
use super::sense::{self, Sense};
use super::step::Io;
use crate::disk::Geometry;

/// The fields of all pages that an initiator can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    /// WCE.
    write_cache: bool,
    /// D_SENSE.
    descriptor_sense: bool,
    /// SWP.
    software_write_protect: bool,
    /// What is not the initiator's to change.
    fixed: Fixed,
    /// TAS.
    task_aborted_status: bool,
}

/// What pages show of the rest of the unit; the same under each page control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fixed {
    /// THRESHOLD COUNT, which the operator decides; without one the page is not there.
    threshold: Option<u32>,
    /// IALUAE: gateways change access states by themselves, as TPGS says.
    implicit: bool,
}

impl Fixed {
    fn of(device: &Device) -> Self {
        Self { threshold: device.threshold(), implicit: device.ports.groups.implicit }
    }
}

/// Mode parameters of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    current: Fields,
    defaults: Fields,
    /// The disk has a cache that WCE can turn off.
    cache: bool,
}

impl Pages {
    pub(super) fn defaults(geometry: &Geometry) -> Self {
        let cache = geometry.volatile_cache;
        let defaults = Fields {
            write_cache: cache,
            descriptor_sense: false,
            software_write_protect: false,
            fixed: Fixed::default(),
            task_aborted_status: true,
        };
        Self { current: defaults, defaults, cache }
    }

    /// WCE.
    pub(super) fn write_cache(&self) -> bool {
        self.current.write_cache
    }

    /// D_SENSE.
    pub(super) fn descriptor_sense(&self) -> bool {
        self.current.descriptor_sense
    }

    /// TAS.
    pub(super) fn task_aborted_status(&self) -> bool {
        self.current.task_aborted_status
    }

    /// SWP.
    pub(super) fn software_write_protect(&self) -> bool {
        self.current.software_write_protect
    }

    fn render(&self, page: &Page, control: PageControl, fixed: Fixed) -> Vec<u8> {
        let all = |on| Fields {
            write_cache: on && self.cache,
            descriptor_sense: on,
            software_write_protect: on,
            fixed,
            task_aborted_status: on,
        };
        match control {
            PageControl::Current => page.render(Fields { fixed, ..self.current }),
            PageControl::Default => page.render(Fields { fixed, ..self.defaults }),
            PageControl::Changeable => {
                let (mut off, on) = (page.render(all(false)), page.render(all(true)));
                let header = page.header_len();
                off.iter_mut().zip(on).skip(header).for_each(|(off, on)| *off ^= on);
                off
            }
        }
    }
}

/// Which values MODE SENSE asks for; there are no saved ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageControl {
    Current,
    Changeable,
    Default,
}

/// One page or subpage.
struct Page {
    code: u8,
    subpage: u8,
    /// Bytes, header included.
    len: usize,
    /// Fills in the contents, at their places in the whole page.
    fill: fn(Fields, &mut [u8]),
    /// Takes the fields from a page.
    take: fn(&[u8], &mut Fields),
}

/// Ascending by code and subpage, as 3Fh returns them.
const PAGES: [Page; 6] = [
    READ_WRITE_ERROR_RECOVERY,
    CACHING,
    CONTROL,
    CONTROL_EXTENSION,
    INFORMATIONAL_EXCEPTIONS,
    LOGICAL_BLOCK_PROVISIONING,
];

/// Read-Write Error Recovery (SBC-3): AWRE and ARRE, reallocation is the store's business.
const READ_WRITE_ERROR_RECOVERY: Page =
    Page { code: 0x01, subpage: 0, len: 12, fill: |_, page| page[2] = 0x80 | 0x40, take: |_, _| {} };

/// Caching (SBC-3): WCE.
const CACHING: Page = Page {
    code: 0x08,
    subpage: 0,
    len: 20,
    fill: |fields, page| page[2] = u8::from(fields.write_cache) << 2,
    take: |page, fields| fields.write_cache = page[2] & 0x04 != 0,
};

/// Control (SPC-4). GLTSD: nothing is logged that could be saved. QUEUE ALGORITHM MODIFIER 1: tasks run in any order.
/// TAS 1, unless an initiator wants otherwise: a task that another nexus has aborted is answered TASK ABORTED (SAM-5), as
/// hosts know it from the kernel's target. Without that answer they would wait for their timeout, and find out by an abort
/// of their own. BUSY TIMEOUT PERIOD: unlimited.
const CONTROL: Page = Page {
    code: 0x0A,
    subpage: 0,
    len: 12,
    fill: |fields, page| {
        page[2] = u8::from(fields.descriptor_sense) << 2 | 0x02;
        page[3] = 0x10;
        page[4] = u8::from(fields.software_write_protect) << 3;
        page[5] = u8::from(fields.task_aborted_status) << 6;
        page[8..10].fill(0xFF);
    },
    take: |page, fields| {
        fields.descriptor_sense = page[2] & 0x04 != 0;
        fields.software_write_protect = page[4] & 0x08 != 0;
        fields.task_aborted_status = page[5] & 0x40 != 0;
    },
};

/// Control Extension (SPC-4): IALUAE.
const CONTROL_EXTENSION: Page = Page {
    code: 0x0A,
    subpage: 1,
    len: 32,
    fill: |fields, page| page[4] = u8::from(fields.fixed.implicit),
    take: |_, _| {},
};

/// Informational Exceptions Control (SPC-4): DEXCPT, exceptions are not predicted.
const INFORMATIONAL_EXCEPTIONS: Page =
    Page { code: 0x1C, subpage: 0, len: 12, fill: |_, page| page[2] = 0x08, take: |_, _| {} };

/// Logical Block Provisioning (SBC-3): one threshold, ENABLED, armed when what is available decreases to it (THRESHOLD
/// RESOURCE 01h). SITUA zero: every nexus is told.
const LOGICAL_BLOCK_PROVISIONING: Page = Page {
    code: 0x1C,
    subpage: 2,
    len: 24,
    fill: |fields, page| {
        page[16..18].copy_from_slice(&[0x80, 0x01]);
        page[20..24].copy_from_slice(&fields.fixed.threshold.unwrap_or(0).to_be_bytes());
    },
    take: |_, _| {},
};

/// The pages of a unit with, or without, a threshold.
fn pages(threshold: Option<u32>) -> impl Iterator<Item = &'static Page> {
    let without = (LOGICAL_BLOCK_PROVISIONING.code, LOGICAL_BLOCK_PROVISIONING.subpage);
    PAGES.iter().filter(move |page| threshold.is_some() || (page.code, page.subpage) != without)
}

/// SPF in a page's first byte: a subpage code and a long length follow.
const SPF: u8 = 0x40;

impl Page {
    fn header_len(&self) -> usize {
        if self.subpage == 0 { 2 } else { 4 }
    }

    fn render(&self, fields: Fields) -> Vec<u8> {
        let mut page = vec![0; self.len];
        (self.fill)(fields, &mut page);
        if self.subpage == 0 {
            page[..2].copy_from_slice(&[self.code, (self.len - 2) as u8]);
        } else {
            let [high, low] = ((self.len - 4) as u16).to_be_bytes();
            page[..4].copy_from_slice(&[self.code | SPF, self.subpage, high, low]);
        }
        page
    }

    /// Whether MODE SENSE for this page code and subpage code returns it (SPC-4, mode page code usage).
    fn answers(&self, code: u8, subpage: u8) -> bool {
        let code_matches = code == ALL || code == self.code;
        code_matches && (subpage == ALL_SUBPAGES || subpage == self.subpage)
    }
}

const ALL: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

/// MODE SENSE(6), (10).
pub(super) fn sense(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let (code, subpage) = (cdb.byte(2) & 0x3F, cdb.byte(3));
    let control = match cdb.byte(2) >> 6 {
        0b00 => PageControl::Current,
        0b01 => PageControl::Changeable,
        0b10 => PageControl::Default,
        _ => return Err(sense::SAVING_PARAMETERS_NOT_SUPPORTED),
    };
    // SPC-4, mode page code usage: with all pages, either no subpages or all of them.
    if code == ALL && !matches!(subpage, 0 | ALL_SUBPAGES) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(3));
    }
    let fixed = Fixed::of(device);
    let pages = pages(fixed.threshold).filter(|page| page.answers(code, subpage));
    let pages: Vec<u8> = pages.flat_map(|page| device.mode.render(page, control, fixed)).collect();
    if pages.is_empty() {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_byte(2));
    }
    let (long, without_descriptor) = (cdb.len() == 10, cdb.bit(1, 0x08));
    let descriptor = match (without_descriptor, long && cdb.bit(1, 0x10)) {
        (true, _) => Vec::new(),
        (false, false) => short_block_descriptor(device),
        (false, true) => long_block_descriptor(device),
    };
    // WP, and DPOFUA: the bits are taken.
    let specific = u8::from(device.write_protected(request.nexus)) << 7 | 0x10;
    let body = descriptor.len() + pages.len();
    let (mut data, allocation) = if long {
        let [high, low] = ((body + 6) as u16).to_be_bytes();
        let long_lba = u8::from(descriptor.len() == 16);
        (vec![high, low, 0, specific, long_lba, 0, 0, descriptor.len() as u8], cdb.u16(7).into())
    } else {
        (vec![(body + 3) as u8, 0, specific, descriptor.len() as u8], cdb.byte(4).into())
    };
    data.extend_from_slice(&descriptor);
    data.extend_from_slice(&pages);
    parameter_data(data, allocation)
}

/// Short LBA mode parameter block descriptor (SBC-3).
fn short_block_descriptor(device: &Device) -> Vec<u8> {
    let blocks = u32::try_from(device.blocks).unwrap_or(u32::MAX);
    let mut descriptor = blocks.to_be_bytes().to_vec();
    descriptor.extend_from_slice(&device.geometry.block_size.to_be_bytes());
    descriptor
}

/// Long LBA mode parameter block descriptor (SBC-3).
fn long_block_descriptor(device: &Device) -> Vec<u8> {
    let mut descriptor = device.blocks.to_be_bytes().to_vec();
    descriptor.extend_from_slice(&[0; 4]);
    descriptor.extend_from_slice(&device.geometry.block_size.to_be_bytes());
    descriptor
}

/// The longest parameter list that is looked at: header, long block descriptor, every page twice.
const LIST: usize = 8 + 16 + 2 * (12 + 20 + 12 + 32 + 12 + 24);

/// MODE SELECT(6), (10): every page is checked before any is put in force.
pub(super) fn select(device: &mut Device, request: &Request<'_>) -> Answer {
    let cdb = request.cdb;
    let long = cdb.len() == 10;
    // SP: nothing can be saved.
    if cdb.bit(1, 0x01) {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 0));
    }
    let claimed = if long { cdb.u16(7).into() } else { cdb.byte(4).into() };
    if claimed == 0 {
        return good(0);
    }
    let list = request.whole_parameter_list(claimed, LIST)?;
    let mut fields = Fields { fixed: Fixed::of(device), ..device.mode.current };
    let mut pages = skip_block_descriptors(device, &list, long)?;
    // PF zero: vendor-specific pages follow, of which there are none.
    if !cdb.bit(1, 0x10) && !pages.is_empty() {
        return Err(sense::INVALID_FIELD_IN_CDB.at_cdb_bit(1, 4));
    }
    while !pages.is_empty() {
        let at = list.len() - pages.len();
        pages = take_page(pages, at, &mut fields)?;
    }
    if fields.write_cache && !device.mode.cache {
        return Err(sense::INVALID_FIELD_IN_PARAMETER_LIST);
    }
    fields.fixed = Fixed::default();
    let cache_turned_off = device.mode.write_cache() && !fields.write_cache;
    if fields != device.mode.current {
        device.mode.current = fields;
        device.gate.establish(sense::MODE_PARAMETERS_CHANGED, Audience::Others(request.nexus));
    }
    // SBC-3, Caching mode page: who turns the cache off may rely on all that was answered before.
    if cache_turned_off { Settle::write(Some(claimed)).after(Io::Flush) } else { good(claimed) }
}

/// Checks header and block descriptor, which can change nothing, and returns what follows.
fn skip_block_descriptors<'a>(device: &Device, list: &'a [u8], long: bool) -> Result<&'a [u8], Sense> {
    let (header, rest) =
        list.split_at_checked(if long { 8 } else { 4 }).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let (len, long_lba) = if long {
        (usize::from(u16::from_be_bytes([header[6], header[7]])), header[4] & 1 != 0)
    } else {
        (usize::from(header[3]), false)
    };
    let (descriptor, pages) = rest.split_at_checked(len).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    let wrong = |byte: usize| Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte(byte as u16));
    if len == 0 {
        return Ok(pages);
    }
    let current = if long_lba { long_block_descriptor(device) } else { short_block_descriptor(device) };
    if len != current.len() {
        return wrong(header.len() - 1);
    }
    // NUMBER OF LOGICAL BLOCKS zero (or all ones) leaves the capacity alone; another capacity is not to be had.
    let (count, length) = current.split_at(if long_lba { 8 } else { 4 });
    let (asked_count, asked_length) = descriptor.split_at(count.len());
    let alone = asked_count.iter().all(|byte| *byte == 0) || asked_count.iter().all(|byte| *byte == 0xFF);
    let same_length = length.iter().zip(asked_length).rev().take(3).all(|(own, asked)| own == asked);
    if (asked_count == count || alone) && same_length { Ok(pages) } else { wrong(header.len()) }
}

/// Takes the fields of the first page in `pages` and returns the rest. `at` is its place in the list.
fn take_page<'a>(pages: &'a [u8], at: usize, fields: &mut Fields) -> Result<&'a [u8], Sense> {
    let wrong = |byte: usize| Err(sense::INVALID_FIELD_IN_PARAMETER_LIST.at_list_byte((at + byte) as u16));
    let subpage =
        if pages[0] & SPF == 0 { 0 } else { *pages.get(1).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)? };
    let Some(page) = self::pages(fields.fixed.threshold)
        .find(|page| page.code == pages[0] & 0x3F && page.subpage == subpage)
    else {
        return wrong(0);
    };
    let (bytes, rest) = pages.split_at_checked(page.len).ok_or(sense::PARAMETER_LIST_LENGTH_ERROR)?;
    (page.take)(bytes, fields);
    let valid = page.render(*fields);
    // Bit 7 of the first byte is PS, which is reserved here and comes back from MODE SENSE.
    let differs = bytes.iter().zip(&valid).enumerate().find_map(|(index, (asked, valid))| {
        let ignored = if index == 0 { 0x80 } else { 0 };
        ((asked ^ valid) & !ignored != 0).then_some(index)
    });
    differs.map_or(Ok(rest), wrong)
}
