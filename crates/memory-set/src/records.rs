//! Backends and flags of areas, stored by the number of the "file" that the areas' VMAs map.

use crate::area::MappingBackend;
use alloc::vec::Vec;
use vmarea::types::Errno;

/// Backend and flags of the VMAs that map one file.
pub struct Record<B: MappingBackend> {
    pub backend: B,
    pub flags: B::Flags,
    /// Start address of the area at the time when it was mapped.
    pub base: u64,
    /// Number shared by all parts of one mapped area.
    pub area: u64,
    /// Number of mapped bytes.
    pub mapped: u64,
}

/// The records of a set. The number of a record is reused when no VMA maps the record any more.
pub struct Records<B: MappingBackend> {
    slots: Vec<Option<Record<B>>>,
    free: Vec<u64>,
    areas: u64,
}

impl<B: MappingBackend> Records<B> {
    pub const fn new() -> Self {
        Records {
            slots: Vec::new(),
            free: Vec::new(),
            areas: 0,
        }
    }

    /// Returns a new area number.
    pub fn next_area(&mut self) -> u64 {
        self.areas += 1;
        self.areas
    }

    /// Adds a record and returns its number.
    pub fn add(&mut self, record: Record<B>) -> Result<u64, Errno> {
        if let Some(number) = self.free.pop() {
            self.slots[number as usize] = Some(record);
            return Ok(number);
        }
        // Room to free every record later, so that unmapping needs no memory.
        let slots = self.slots.try_reserve(1);
        let free = self.free.try_reserve(self.slots.len() + 1);
        slots.and(free).map_err(|_| Errno::ENOMEM)?;
        self.slots.push(Some(record));
        Ok(self.slots.len() as u64 - 1)
    }

    pub fn get(&self, number: u64) -> &Record<B> {
        let record = self.slots[number as usize].as_ref();
        record.expect("a VMA maps it")
    }

    /// Adds `bytes` to a record's number of mapped bytes.
    pub fn mapped(&mut self, number: u64, bytes: u64) {
        let record = self.slots[number as usize].as_mut();
        record.expect("just added or mapped").mapped += bytes;
    }

    /// Subtracts `bytes` from a record's number of mapped bytes; frees the record if none remain.
    pub fn unmapped(&mut self, number: u64, bytes: u64) {
        let slot = &mut self.slots[number as usize];
        let record = slot.as_mut().expect("it was mapped");
        record.mapped -= bytes;
        if record.mapped == 0 {
            *slot = None;
            self.free.push(number);
        }
    }
}
