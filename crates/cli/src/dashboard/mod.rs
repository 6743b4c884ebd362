//! The terminal interface of `top`: a list of processes that is redrawn after each sample, a page
//! that explains the selected process, and help.
//!
//! Between two samples nothing is read, and only a key or a resize redraws the screen. Only the
//! rows that the screen has room for are drawn.
//!
//! # Picture
//! ```text
//! 97 processes with mappings, each at most 65,530      summary
//! sorted by mappings                                   order, filter
//!     PID MAPPINGS  LIMIT ...  COMMAND                 list
//! ────────
//! 4242 www-data, container 0123456789ab ...            the selected process
//! Enter explain   / filter   s sort   ? help   q leave
//! ```

mod list;
mod page;
mod screen;
mod table;

use anyhow::Context;
use list::List;
use page::Page;
use screen::{Event, Key, Screen, Size};
use std::time::{Duration, Instant};
use vmarea_explain::rows::printable;
use vmarea_explain::text::count;
use vmarea_explain::top::{Look, ProcessRow, Sampler};
use vmarea_process::rights::{self, Capability};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

/// Lines above the keys from which on the selected process has lines of its own.
const ROOM_FOR_DETAILS: usize = 12;
/// Width of the screen below which texts are shortened.
const NARROW: usize = 70;
/// Rows or lines that PgUp and PgDn move by.
const PAGE: isize = 20;

/// Shows the processes until the user quits.
///
/// # Errors
/// Fails if the terminal cannot be drawn on, or if the processes cannot be listed.
pub fn show(sampler: &mut Sampler, interval: Duration, console: &Console) -> Result<()> {
    let look = sampler.look().context("cannot list the processes")?;
    let mut screen = Screen::enter().context("cannot draw on this terminal")?;
    let mut dashboard = Dashboard {
        list: List::new(look),
        first: 0,
        view: View::List,
        console,
    };
    dashboard.run(&mut screen, sampler, interval)
}

struct Dashboard<'a> {
    list: List,
    /// Number of the first row on the screen.
    first: usize,
    view: View,
    console: &'a Console,
}

/// What the screen shows, and who receives the keys.
#[derive(Debug)]
enum View {
    List,
    /// The list, while the user types a filter.
    Filter,
    Page(Page),
}

/// Action that a key requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    GoOn,
    Sample,
    End,
}

impl Dashboard<'_> {
    fn run(
        &mut self,
        screen: &mut Screen,
        sampler: &mut Sampler,
        interval: Duration,
    ) -> Result<()> {
        let mut due = Instant::now() + sampler.pause(interval);
        loop {
            let size = screen.size();
            screen.draw(&self.lines(size), size)?;
            let left = due.saturating_duration_since(Instant::now());
            let wish = match screen.wait(left)? {
                Event::Key(key) => self.key(key),
                Event::Redraw => Wish::GoOn,
                Event::Timeout => Wish::Sample,
            };
            match wish {
                Wish::GoOn => {}
                Wish::End => return Ok(()),
                Wish::Sample => {
                    let look = sampler.look().context("cannot list the processes")?;
                    self.list.replace(look);
                    due = Instant::now() + sampler.pause(interval);
                }
            }
        }
    }

    fn key(&mut self, key: Key) -> Wish {
        match &mut self.view {
            _ if key == Key::CtrlC => return Wish::End,
            View::List => return self.key_in_list(key),
            View::Filter => self.key_in_filter(key),
            View::Page(_) => self.key_in_page(key),
        }
        Wish::GoOn
    }

    fn key_in_list(&mut self, key: Key) -> Wish {
        match key {
            Key::Letter('q') => return Wish::End,
            Key::Letter('r') => return Wish::Sample,
            Key::Letter('s') => self.list.next_order(),
            Key::Letter('/') => self.view = View::Filter,
            Key::Letter('?') => self.view = View::Page(Page::help()),
            Key::Escape => self.list.set_filter(""),
            Key::Enter => {
                if let Some(row) = self.list.selected() {
                    self.view = View::Page(Page::explain(row.pid, self.console));
                }
            }
            key => self.list.select(movement(key).unwrap_or(0)),
        }
        Wish::GoOn
    }

    fn key_in_filter(&mut self, key: Key) {
        let mut filter = self.list.filter().to_owned();
        match key {
            Key::Enter => self.view = View::List,
            Key::Escape => {
                filter.clear();
                self.view = View::List;
            }
            Key::Backspace => {
                filter.pop();
            }
            Key::Letter(letter) => filter.push(letter),
            _ => {}
        }
        self.list.set_filter(&filter);
    }

    fn key_in_page(&mut self, key: Key) {
        let View::Page(page) = &mut self.view else {
            return;
        };
        match (key, page.pid) {
            (Key::Letter('q' | '?') | Key::Escape | Key::Enter, _) => self.view = View::List,
            (Key::Letter('r'), Some(pid)) => *page = Page::explain(pid, self.console),
            (key, _) => page.scroll(movement(key).unwrap_or(0)),
        }
    }

    /// Returns the lines of a screen of this size; the last has the keys.
    fn lines(&mut self, size: Size) -> Vec<String> {
        let room = size.rows.saturating_sub(1);
        let mut lines = match &mut self.view {
            View::Page(page) => page.lines(size.columns, room),
            View::List | View::Filter => self.lines_of_list(size.columns, room),
        };
        lines.resize(room, String::new());
        let keys = console::style(self.keys(size.columns)).cyan();
        lines.push(keys.to_string());
        lines
    }

    fn lines_of_list(&mut self, columns: usize, room: usize) -> Vec<String> {
        let details = if room >= ROOM_FOR_DETAILS { 4 } else { 0 };
        // The summary, the heading and the names of the columns.
        let rows = room.saturating_sub(3 + details).max(1);
        let at = self.list.position();
        self.first = self.first.clamp((at + 1).saturating_sub(rows), at);
        let mut lines = vec![brief(self.list.look(), columns), self.heading(columns)];
        let shown = self.list.rows(self.first, rows);
        lines.extend(table::lines(shown, at - self.first, columns, self.console));
        lines.resize(3 + rows, String::new());
        if let Some(row) = self.list.selected().filter(|_| details > 0) {
            lines.push("─".repeat(columns));
            lines.extend(details_of(row).map(|line| printable(&line)));
        }
        lines
    }

    fn heading(&self, width: usize) -> String {
        let order = format!("sorted by {}", self.list.order().name());
        let shown = count(self.list.len() as u64);
        match self.list.filter() {
            "" => order,
            filter if width < NARROW => format!("{shown} with `{}`", printable(filter)),
            filter => format!("{order}; {shown} with `{}`", printable(filter)),
        }
    }

    fn keys(&self, width: usize) -> String {
        let text = match &self.view {
            View::Filter => return format!("/{}█", printable(self.list.filter())),
            View::Page(page) if page.pid.is_none() => "q back   ↑↓ scroll",
            View::Page(_) => "q back   ↑↓ scroll   r read again",
            View::List if width < NARROW => "Enter why  / find  s sort  ? help  q",
            View::List => "Enter explain   / filter   s sort   ↑↓ select   ? help   q leave",
        };
        text.to_owned()
    }
}

/// Returns the number of rows by which a key moves; a negative number moves up.
fn movement(key: Key) -> Option<isize> {
    Some(match key {
        Key::Down | Key::Letter('j') => 1,
        Key::Up | Key::Letter('k') => -1,
        Key::PageDown | Key::Letter(' ') => PAGE,
        Key::PageUp => -PAGE,
        Key::End => isize::MAX,
        Key::Home => isize::MIN,
        _ => return None,
    })
}

/// Returns the labels of the selected process, which its row has no room for.
fn details_of(row: &ProcessRow) -> [String; 3] {
    let container = match &row.container {
        Some(container) => format!(", container {container}"),
        None => String::new(),
    };
    let limit = match row.minutes_to_limit {
        Some(_) => format!(", limit in {}", table::time(row.minutes_to_limit)),
        None => String::new(),
    };
    let growth = table::growth(row.per_minute);
    [
        format!(
            "{} {}{container}; {growth} per minute{limit}",
            row.pid, row.user
        ),
        format!("runs {}", table::command(row)),
        format!("in {}", row.cgroup),
    ]
}

/// Returns the summary, shortened if the screen is too narrow.
fn brief(look: &Look, width: usize) -> String {
    let whole = summary(look);
    if whole.len() <= width {
        return whole;
    }
    let unreadable = match look.unreadable {
        0 => String::new(),
        n => format!("; {} unreadable", count(n)),
    };
    let (processes, limit) = (count(look.processes), count(look.limit));
    format!("{processes} processes{unreadable}; limit {limit}")
}

/// Returns one line that summarises a sample.
pub(crate) fn summary(look: &Look) -> String {
    let mut text = format!(
        "{} processes with mappings, each at most {}",
        count(look.processes),
        count(look.limit)
    );
    if look.unreadable > 0 {
        text += &format!(
            "; {} more cannot be read ({})",
            count(look.unreadable),
            rights::remedy(&[Capability::SysPtrace])
        );
    }
    text
}
