//! Why the search finds no free address range, and how long the longest one is.

use super::{LOW, Room, Search};
use crate::refused::{Area, Refused};
use crate::types::Errno;
use crate::types::call_flags::MapFlags;
use crate::types::platform::Environment;
use crate::types::writers::Writers;

impl<E: Environment, K: Writers> Search<'_, E, K> {
    /// `room` at `start` ends above the address space.
    #[cold]
    pub(super) fn refuse_outside(&self, start: u64, room: &Room) -> Errno {
        let (len, end) = (room.len, self.space.system.task_size);
        (self.space).refuse(Errno::ENOMEM, Refused::Outside { start, len, end })
    }

    /// No gap is long enough for `room`.
    #[cold]
    pub(super) fn refuse_full(&self, room: &Room) -> Errno {
        self.space.refuse_with(Errno::ENOMEM, || {
            let lowest = self.space.system.lowest_addr();
            let (area, largest) = match room.flags.contains(MapFlags::BIT32) {
                true => (Area::Low, self.largest(LOW.0.max(lowest), LOW.1, room)),
                false => {
                    let task_size = self.space.system.task_size;
                    let below = self.largest(lowest, self.layout.mmap_base, room);
                    let above = self.largest(self.layout.legacy_base.max(lowest), task_size, room);
                    (Area::All, below.max(above))
                }
            };
            let asked = room.len;
            Refused::NoGap {
                asked,
                largest,
                area,
            }
        })
    }

    /// Returns the length of the longest range that could be placed between two addresses.
    fn largest(&self, low: u64, high: u64, room: &Room) -> u64 {
        let unit = room.unit();
        let fits = |units: u64| {
            let len = units * unit;
            self.lowest(low, high, &Room { len, ..*room }).is_some()
        };
        let (mut most, mut too_many) = (0, high.saturating_sub(low) / unit + 1);
        while too_many - most > 1 {
            let middle = most + (too_many - most) / 2;
            match fits(middle) {
                true => most = middle,
                false => too_many = middle,
            }
        }
        most * unit
    }
}
