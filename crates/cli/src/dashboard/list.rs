//! The processes on the screen: their order, the filter, and the selected one.
//!
//! The selection stays with its process when the order changes. Until the user moves it, it stays
//! in the first row.

use std::cmp::Ordering;
use vmarea_explain::top::{Look, ProcessRow};

/// Sort order of the processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Mappings,
    Growth,
    TimeToLimit,
    Mergeable,
    Size,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Mappings => Order::Growth,
            Order::Growth => Order::TimeToLimit,
            Order::TimeToLimit => Order::Mergeable,
            Order::Mergeable => Order::Size,
            Order::Size => Order::Mappings,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Order::Mappings => "mappings",
            Order::Growth => "growth",
            Order::TimeToLimit => "time to limit",
            Order::Mergeable => "mergeable",
            Order::Size => "size",
        }
    }

    /// Compares two processes; processes that are equal in this order are in that of their ids.
    fn compare(self, a: &ProcessRow, b: &ProcessRow) -> Ordering {
        let growth = |row: &ProcessRow| row.per_minute.unwrap_or(0.0);
        let left = |row: &ProcessRow| row.minutes_to_limit.unwrap_or(f64::INFINITY);
        let more_mappings = || b.mappings.cmp(&a.mappings);
        let order = match self {
            Order::Mappings => more_mappings(),
            Order::Mergeable => b.joinable.cmp(&a.joinable),
            Order::Size => b.virtual_bytes.cmp(&a.virtual_bytes),
            Order::Growth => growth(b).total_cmp(&growth(a)),
            Order::TimeToLimit => left(a).total_cmp(&left(b)).then_with(more_mappings),
        };
        order.then_with(|| a.pid.cmp(&b.pid))
    }
}

/// A sample as the user wants to see it.
#[derive(Debug)]
pub(super) struct List {
    look: Look,
    order: Order,
    filter: String,
    /// Indexes of the rows that pass the filter.
    shown: Vec<usize>,
    selected: usize,
    /// Process that the user has selected.
    follows: Option<i32>,
}

impl List {
    pub fn new(look: Look) -> List {
        let mut list = List {
            look,
            order: Order::Mappings,
            filter: String::new(),
            shown: Vec::new(),
            selected: 0,
            follows: None,
        };
        list.arrange();
        list
    }

    pub fn replace(&mut self, look: Look) {
        self.look = look;
        self.arrange();
    }

    pub fn next_order(&mut self) {
        self.order = self.order.next();
        self.arrange();
    }

    pub fn set_filter(&mut self, filter: &str) {
        filter.clone_into(&mut self.filter);
        self.arrange();
    }

    /// Moves the selection by a number of rows, as far as there are rows.
    pub fn select(&mut self, rows: isize) {
        self.selected = self.selected.saturating_add_signed(rows);
        self.selected = self.selected.min(self.shown.len().saturating_sub(1));
        self.follows = self.selected().map(|row| row.pid);
    }

    pub fn look(&self) -> &Look {
        &self.look
    }

    pub fn order(&self) -> Order {
        self.order
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Number of processes that pass the filter.
    pub fn len(&self) -> usize {
        self.shown.len()
    }

    /// Returns the row number of the selection.
    pub fn position(&self) -> usize {
        self.selected
    }

    pub fn selected(&self) -> Option<&ProcessRow> {
        self.rows(self.selected, 1).next()
    }

    /// Returns at most `count` rows, beginning with row number `first`.
    pub fn rows(&self, first: usize, count: usize) -> impl Iterator<Item = &ProcessRow> {
        let shown = self.shown.iter().skip(first).take(count);
        shown.map(|&index| &self.look.rows[index])
    }

    fn arrange(&mut self) {
        let order = self.order;
        let rows = &mut self.look.rows;
        rows.sort_unstable_by(|a, b| order.compare(a, b));
        let wanted = self.filter.to_lowercase();
        let rows = self.look.rows.iter().enumerate();
        let passing = rows.filter(|(_, row)| passes(row, &wanted));
        self.shown = passing.map(|(index, _)| index).collect();
        let followed = self.follows.and_then(|pid| {
            let mut pids = self.shown.iter().map(|&index| self.look.rows[index].pid);
            pids.position(|other| other == pid)
        });
        let last = self.shown.len().saturating_sub(1);
        self.selected = followed.unwrap_or(self.selected.min(last));
        if self.follows.is_none() {
            self.selected = 0;
        }
    }
}

/// True if any label of the process contains the text, which is in lower case.
fn passes(row: &ProcessRow, text: &str) -> bool {
    let container = row.container.as_deref().unwrap_or_default();
    let labels = [&row.name, &row.command_line, &row.user, &row.cgroup];
    let mut labels = labels.into_iter().map(String::as_str).chain([container]);
    text.is_empty()
        || row.pid.to_string().contains(text)
        || labels.any(|label| label.to_lowercase().contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmarea::policy::kernel::KernelRules;
    use vmarea_process::kernel::RulesBasis;

    fn row(pid: i32, mappings: u64, joinable: u64, per_minute: f64) -> ProcessRow {
        ProcessRow {
            pid,
            name: "x".to_owned(),
            command_line: format!("/bin/x --number {pid}"),
            user: if pid == 3 { "Carol" } else { "bob" }.to_owned(),
            container: None,
            cgroup: "/".to_owned(),
            mappings,
            percent_of_limit: 0.0,
            per_minute: Some(per_minute),
            minutes_to_limit: (per_minute > 0.0).then(|| 100.0 / per_minute),
            joinable: Some(joinable),
            virtual_bytes: mappings << 12,
        }
    }

    fn list() -> List {
        List::new(Look {
            schema: 2,
            limit: 100,
            rules: RulesBasis::from(&KernelRules::of("6.18.0", "")),
            processes: 3,
            unreadable: 0,
            took_ns: 1,
            rows: vec![row(1, 10, 5, 0.0), row(2, 30, 1, 4.0), row(3, 20, 9, -2.0)],
        })
    }

    fn pids(list: &List) -> Vec<i32> {
        list.rows(0, 9).map(|row| row.pid).collect()
    }

    #[test]
    fn processes_are_ordered_as_asked() {
        let mut list = list();
        for expected in [[2, 3, 1], [2, 1, 3], [2, 3, 1], [3, 1, 2], [2, 3, 1]] {
            assert_eq!(pids(&list), expected, "{:?}", list.order());
            list.next_order();
        }
        assert_eq!(list.order(), Order::Mappings);
    }

    #[test]
    fn the_selection_stays_with_its_process() {
        let mut list = list();
        list.select(1);
        assert_eq!(list.selected().unwrap().pid, 3);
        list.next_order();
        assert_eq!((list.position(), list.selected().unwrap().pid), (2, 3));
        list.set_filter("number 2");
        assert_eq!((list.position(), list.selected().unwrap().pid), (0, 2));
        list.set_filter("nothing like that");
        assert_eq!(list.selected(), None);
        list.select(-1);
        list.set_filter("");
        assert_eq!(list.selected().unwrap().pid, 2, "the first by growth");
    }

    #[test]
    fn a_filter_finds_any_label_in_any_case() {
        let mut list = list();
        for (filter, expected) in [
            ("carol", vec![3]),
            ("BOB", vec![2, 1]),
            ("--number", vec![2, 3, 1]),
            ("2", vec![2]),
            ("zzz", vec![]),
        ] {
            list.set_filter(filter);
            assert_eq!(pids(&list), expected, "{filter}");
        }
    }
}
