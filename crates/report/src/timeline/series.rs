//! A count over time in bounded memory.

/// Largest number of points; a longer series keeps the maximum of each two neighbours.
const MOST_POINTS: usize = 2048;

/// A count that changes at steps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Series {
    points: Vec<(u32, u64)>,
    /// Number of steps that share one point.
    width: u32,
}

impl Series {
    /// Adds the count after a step; steps never go back.
    pub fn push(&mut self, step: u32, count: u64) {
        if self.points.last().is_some_and(|last| last.1 == count) {
            return;
        }
        match self.points.last_mut() {
            Some(last) if step < last.0 + self.width => last.1 = last.1.max(count),
            _ => self.points.push((step, count)),
        }
        if self.points.len() > MOST_POINTS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let pairs = self.points.chunks(2);
        let highest = pairs.filter_map(|pair| {
            let step = pair.first()?.0;
            Some((step, pair.iter().map(|point| point.1).max()?))
        });
        self.points = highest.collect();
        let (first, last) = (self.points.first(), self.points.last());
        let span = first.zip(last).map_or(0, |(first, last)| last.0 - first.0);
        self.width = span / (MOST_POINTS as u32 / 2);
    }

    /// Returns the points: each count holds from its step to the next point.
    pub fn points(&self) -> &[(u32, u64)] {
        &self.points
    }

    /// Returns the largest count.
    pub fn peak(&self) -> u64 {
        self.points.iter().map(|point| point.1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_keeps_its_peak_and_its_order_in_bounded_memory() {
        let mut series = Series::default();
        for step in 0..1_000_000 {
            series.push(step, u64::from(step % 1000));
        }
        series.push(1_000_001, 5000);
        assert!(series.points().len() <= MOST_POINTS);
        assert_eq!(series.peak(), 5000);
        assert!(series.points().is_sorted_by_key(|point| point.0));
    }

    #[test]
    fn an_unchanged_count_takes_no_point() {
        let mut series = Series::default();
        [(1, 4), (2, 4), (3, 5)]
            .into_iter()
            .for_each(|(step, count)| series.push(step, count));
        assert_eq!(series.points(), [(1, 4), (3, 5)]);
    }
}
