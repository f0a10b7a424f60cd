//! Making a ring: options, the sealed memfd, and both ends over it.

use std::sync::{Arc, Mutex, Weak};

use super::pages::Pages;
use super::ring::Ring;
use super::{Producer, Shared};
use crate::abi;
use crate::area::{Area, Layout};
use crate::pool::{Tenancy, Terms};
use crate::protocol::{Geometry, mailbox};
use crate::shm::{Mapping, back, create_sealed, page_size};
use crate::{Consumer, Pool};

/// What this producer can do with a response.
const CAPABILITIES: u16 = abi::CAP_OOOC | abi::CAP_READ_LEN | abi::CAP_TMR;
/// Largest command area: what a consumer believes.
const MAX_COMMAND_AREA: usize = 64 << 20;
/// Largest data area.
const MAX_DATA_AREA: usize = 1 << 40;

/// Sizes of one LUN's ring. All in bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mailbox and command ring together; default 8 MiB. Rounded up to pages; 1 page to 64 MiB.
    pub command_area: usize,
    /// Address range reserved for data; default 1 GiB. Nothing is allocated at first. Rounded up to blocks; at most
    /// 1 TiB.
    pub data_area: usize,
    /// Block size; a multiple of the page size; default one page.
    pub block: usize,
    /// Resident data-area bytes that an idle shrink leaves; default 0.
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
            block: page_size(),
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
    let page = page_size();
    let sizes = Sizes::check(options, page)?;
    let file = Arc::new(create_sealed((sizes.command + sizes.data()) as u64).map_err(CreateError::Memory)?);
    let mapping = Mapping::new(&file, sizes.command + sizes.data()).map_err(CreateError::Memory)?;
    let mapping = Arc::new(mapping);
    let terms = Terms {
        area: sizes.data() as u64,
        largest: options.largest_command.next_multiple_of(options.block) as u64,
        command: page as u64,
        fixed: options.preallocate,
    };
    let tenant = pool.shared.open(terms).ok_or_else(|| {
        CreateError::Option(format!(
            "preallocate: {} bytes are more than the pool has left of its {}",
            terms.area,
            pool.shared.limit()
        ))
    })?;
    mapping.attach(Box::new(Tenancy { pool: Arc::clone(&pool.shared), tenant }));
    if options.preallocate {
        back(&file, sizes.command, sizes.data()).map_err(CreateError::Memory)?;
    }
    let geometry = Geometry { base: abi::MAILBOX_LEN, size: sizes.command as u32 - abi::MAILBOX_LEN };
    mailbox::initialise(&*mapping, abi::MAILBOX_VERSION, CAPABILITIES, geometry);
    let consumer = Consumer::over(Arc::clone(&mapping))
        .map_err(|error| CreateError::Memory(std::io::Error::other(error)))?;
    let layout = Layout {
        base: sizes.command,
        block: options.block,
        blocks: sizes.blocks,
        floor: options.floor as u64,
        fixed: options.preallocate,
    };
    let area = Area::new(Arc::clone(&mapping), Arc::clone(&file), Arc::clone(&pool.shared), tenant, layout);
    let pages = Pages::new(page, sizes.command);
    let ring = Mutex::new(Ring::new(mapping, Arc::clone(&file), geometry, pages));
    let shared = Arc::new(Shared { ring, area: Arc::new(area), file });
    let pages: Weak<Shared<T>> = Arc::downgrade(&shared);
    pool.shared.introduce(tenant, Arc::downgrade(&shared.area), pages);
    Ok((Producer { shared }, consumer))
}

/// Checked sizes.
struct Sizes {
    command: usize,
    block: usize,
    blocks: u32,
}

impl Sizes {
    fn check(options: &Options, page: usize) -> Result<Self, CreateError> {
        let Options { command_area, data_area, block, floor, largest_command, .. } = *options;
        let refuse = |text: String| Err(CreateError::Option(text));
        if command_area == 0 || command_area > MAX_COMMAND_AREA {
            return refuse(format!(
                "command_area: {command_area}; accepted are 1 to {MAX_COMMAND_AREA} bytes"
            ));
        }
        if block == 0 || !block.is_multiple_of(page) || block > data_area {
            return refuse(format!("block: {block}; accepted are multiples of {page} up to the data area"));
        }
        if data_area > MAX_DATA_AREA {
            return refuse(format!("data_area: {data_area}; accepted are {block} to {MAX_DATA_AREA} bytes"));
        }
        if floor > data_area || largest_command > data_area {
            return refuse(format!(
                "floor: {floor} and largest_command: {largest_command}; at most the data area"
            ));
        }
        let Ok(blocks) = u32::try_from(data_area.div_ceil(block)) else {
            return refuse(format!(
                "block: {block}; accepted are sizes that make at most {} blocks",
                u32::MAX
            ));
        };
        Ok(Self { command: command_area.next_multiple_of(page), block, blocks })
    }

    fn data(&self) -> usize {
        self.block * self.blocks as usize
    }
}
