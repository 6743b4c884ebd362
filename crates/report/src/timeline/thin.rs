//! Thinning: what is left out of a timeline that would be too large.
//!
//! Of the mappings, those that existed for the shortest time go first, so what stays is what a
//! reader would see at most moments; those of the moment with the most mappings stay as long as
//! there is room, so that the page counts that moment exactly. Of marks, neighbours of one kind are joined into one mark
//! with a count, so no merge, split or refusal disappears from the sums.

use super::{Band, Mark};

/// Number of mappings that a page shows; more than the default limit of a process.
pub const MOST_BANDS: usize = 100_000;
/// Number of ended mappings that are kept while the recording is replayed.
pub const MOST_COLLECTED: usize = 4 * MOST_BANDS;
/// Number of marks that a page shows.
pub const MOST_MARKS: usize = 12_000;

/// Keeps at most `most` bands: the preferred ones, and those that lasted longest.
///
/// Returns how many went, and for how many steps the longest of them lasted.
pub fn bands(bands: &mut Vec<Band>, most: usize, preferred: impl Fn(&Band) -> bool) -> (u64, u32) {
    let Some(surplus) = bands.len().checked_sub(most).filter(|n| *n > 0) else {
        return (0, 0);
    };
    let wanted = bands.iter().filter(|band| preferred(band)).count();
    let stays = |band: &Band| wanted <= most && preferred(band);
    let length = |band: &Band| band.to - band.from;
    let others = || bands.iter().filter(|band| !stays(band)).map(length);
    let mut lengths: Vec<u32> = others().collect();
    let (_, &mut longest, _) = lengths.select_nth_unstable(surplus - 1);
    let shorter = others().filter(|length| *length < longest).count();
    let equal = others().filter(|length| *length == longest).count();
    // Of the bands that lasted equally long, every n-th stays.
    let stay = equal - (surplus - shorter);
    let mut met = 0;
    bands.retain(|band| {
        if stays(band) || length(band) != longest {
            return stays(band) || length(band) > longest;
        }
        met += 1;
        met * stay / equal > (met - 1) * stay / equal
    });
    (surplus as u64, longest)
}

/// Joins neighbouring marks of one kind until there are at most `most`; returns how many went.
pub fn marks(marks: &mut Vec<Mark>, most: usize) -> u64 {
    let before = marks.len();
    let mut width = 1;
    while marks.len() > most {
        width *= 2;
        let mut joined: Vec<Mark> = Vec::with_capacity(marks.len());
        let mut last: std::collections::HashMap<_, usize> = std::collections::HashMap::new();
        for mark in marks.drain(..) {
            let key = (mark.space, mark.what, mark.detail);
            match last.get(&key).map(|&at| &mut joined[at]) {
                Some(open) if mark.step - open.step < width => open.count += mark.count,
                _ => {
                    last.insert(key, joined.len());
                    joined.push(mark);
                }
            }
        }
        *marks = joined;
    }
    (before - marks.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::What;

    fn band(from: u32, to: u32) -> Band {
        Band {
            from,
            to,
            ..Band::default()
        }
    }

    #[test]
    fn the_bands_that_lasted_longest_stay() {
        let mut all: Vec<_> = (0..100).map(|n| band(n, n + 1 + n % 10)).collect();
        assert_eq!(bands(&mut all, 25, |_| false), (75, 8));
        assert_eq!(all.len(), 25);
        assert!(all.iter().all(|band| band.to - band.from >= 8));
        assert!(all.is_sorted_by_key(|band| band.from));
        assert_eq!(bands(&mut all, 25, |_| false), (0, 0));
    }

    #[test]
    fn preferred_bands_stay_although_they_are_short() {
        let mut all: Vec<_> = (0..100).map(|n| band(n, n + 1 + n % 10)).collect();
        let short = |band: &Band| band.to - band.from == 1;
        assert_eq!(bands(&mut all, 25, short), (75, 9));
        assert_eq!(all.len(), 25);
        assert_eq!(all.iter().filter(|band| short(band)).count(), 10);
    }

    #[test]
    fn joined_marks_keep_their_sum() {
        let mut all: Vec<_> = (0..1000)
            .map(|step| Mark {
                space: 0,
                step,
                what: if step % 2 == 0 {
                    What::Merge
                } else {
                    What::Split
                },
                detail: 0,
                count: 1,
                addr: 0,
            })
            .collect();
        assert!(marks(&mut all, 100) >= 900);
        assert!(all.len() <= 100);
        assert_eq!(all.iter().map(|mark| mark.count).sum::<u64>(), 1000);
    }
}
