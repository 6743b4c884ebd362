//! Generation of userfaultfd commands.
//!
//! Minor mode, which watches pages in the page cache, is not used: Linux also maps pages around a
//! fault, and such pages then raise no minor fault.

use super::super::arena::{START, USERFAULTFD};
use super::super::model::Mapped;
use super::super::op::{Call, Op, UFFDIO_REGISTER, UFFDIO_UNREGISTER};
use super::Choice;
use super::calls::move_whole;
use super::process::write;
use super::theme::Theme;
use vmarea_trace::sysno;

const MISSING: u64 = 1;
const WRITE_PROTECT: u64 = 2;
/// Watches all accesses to protected pages; of these calls none protects a page.
const ACCESS_PROTECT: u64 = 8;

/// True if the sequence may have memory that a userfaultfd watches.
fn is_usable(c: &Choice<'_>) -> bool {
    // A page of shared memory that was never written is missing again after it was swapped out.
    c.facts.userfaultfd && !matches!(c.theme, Theme::Pages | Theme::Pool)
}

fn register((addr, len): (u64, u64), mode: u64) -> Call {
    let mut call = Call::new(sysno::IOCTL, [USERFAULTFD, UFFDIO_REGISTER, 0]);
    call.data = vec![addr, len, mode, 0];
    call
}

/// Registers or unregisters any range with the userfaultfd.
pub(super) fn userfaultfd(c: &mut Choice<'_>) -> Op {
    if !is_usable(c) {
        return write(c);
    }
    let (addr, len) = c.range();
    let mut call = if c.rng.chance(2, 3) {
        let [wp, rwp] = [MISSING | WRITE_PROTECT, MISSING | ACCESS_PROTECT];
        let modes = [
            MISSING,
            MISSING,
            MISSING,
            WRITE_PROTECT,
            wp,
            ACCESS_PROTECT,
            rwp,
            wp | rwp,
            0,
            16,
        ];
        register((addr, len), c.rng.pick(&modes))
    } else {
        let mut call = Call::new(sysno::IOCTL, [USERFAULTFD, UFFDIO_UNREGISTER, 0]);
        call.data = vec![addr, len];
        call
    };
    if c.rng.chance(1, 12) {
        let at = c.rng.below(2) as usize;
        call.data[at] = c.rng.pick(&[0, 1, 0x800, u64::MAX, u64::MAX << 12]);
    }
    Op::Call(call)
}

/// Moves a whole mapping that a userfaultfd watches, mostly beside another one of this kind.
pub(super) fn move_watched(c: &mut Choice<'_>) -> Op {
    let watched: Vec<Mapped> = c.vmas.iter().filter(|v| v.watched).copied().collect();
    if watched.is_empty() {
        return watch(c);
    }
    let (v, beside) = (c.rng.pick(&watched), c.rng.pick(&watched));
    let len = v.end - v.start;
    let to = match c.rng.below(4) {
        0 => c.place(len),
        1 if beside.start >= START + len => beside.start - len,
        _ => beside.end,
    };
    move_whole(&v, to)
}

/// Registers a mapping that a userfaultfd can watch, or one that it watches already in another mode.
pub(super) fn watch(c: &mut Choice<'_>) -> Op {
    let all = c.vmas.iter().filter(|v| v.number.is_none()).copied();
    let all: Vec<Mapped> = all.collect();
    if !is_usable(c) || all.is_empty() {
        return write(c);
    }
    let watched: Vec<Mapped> = all.iter().filter(|v| v.watched).copied().collect();
    let v = match watched.is_empty() || c.rng.chance(1, 2) {
        true => c.rng.pick(&all),
        false => c.rng.pick(&watched),
    };
    let modes = [
        MISSING,
        WRITE_PROTECT,
        MISSING | WRITE_PROTECT,
        ACCESS_PROTECT,
        MISSING | ACCESS_PROTECT,
    ];
    Op::Call(register((v.start, v.end - v.start), c.rng.pick(&modes)))
}
