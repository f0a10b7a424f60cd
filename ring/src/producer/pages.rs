//! Which pages of the command area have been touched: what is charged for it.

use crate::shm::spans;

/// Touched pages of the mailbox and the command ring.
#[derive(Debug)]
pub(super) struct Pages {
    page: usize,
    /// Bytes of mailbox and ring.
    len: usize,
    touched: Vec<u64>,
    count: u64,
}

impl Pages {
    /// Nothing but the mailbox is touched.
    pub(super) fn new(page: usize, len: usize) -> Self {
        let mut pages = Self { page, len, touched: vec![0; len.div_ceil(page).div_ceil(64)], count: 0 };
        pages.touch(0, 1);
        pages
    }

    /// Notes that bytes are about to be written; `true` when that takes a new page.
    pub(super) fn touch(&mut self, offset: usize, len: usize) -> bool {
        let mut new = 0;
        for (word, mask) in spans((offset / self.page) as u32, (offset + len).div_ceil(self.page) as u32) {
            new += (mask & !self.touched[word]).count_ones();
            self.touched[word] |= mask;
        }
        self.count += u64::from(new);
        new > 0
    }

    /// Bytes touched.
    pub(super) fn bytes(&self) -> u64 {
        self.count * self.page as u64
    }

    /// Takes the touched pages that lie wholly within `offset..offset + len` and calls `punch` with each run of them.
    /// The mailbox's page is never taken. Those for which `punch` fails stay.
    pub(super) fn take(
        &mut self,
        offset: usize,
        len: usize,
        mut punch: impl FnMut(usize, usize) -> bool,
    ) -> u64 {
        let first = offset.div_ceil(self.page).max(1);
        // A last page that is cut short by the end of the area has no other tenant.
        let end = offset + len;
        let last = if end >= self.len { self.len.div_ceil(self.page) } else { end / self.page };
        let (mut freed, mut page) = (0, first);
        while page < last {
            let run = (page..last).take_while(|page| self.is_touched(*page)).count();
            if run > 0 && punch(page * self.page, run * self.page) {
                for (word, mask) in spans(page as u32, (page + run) as u32) {
                    self.touched[word] &= !mask;
                }
                self.count -= run as u64;
                freed += run as u64 * self.page as u64;
            }
            page += run + 1;
        }
        freed
    }

    fn is_touched(&self, page: usize) -> bool {
        self.touched[page / 64] >> (page % 64) & 1 != 0
    }
}
