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
mod table;

use anyhow::Context;
use list::List;
use page::Page;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::time::{Duration, Instant};
use vmarea_explain::rows::printable;
use vmarea_explain::text::count;
use vmarea_explain::top::{Look, ProcessRow, Sampler};
use vmarea_process::rights::{self, Capability};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::Result;

/// Height of the screen from which on the selected process has lines of its own.
const ROOM_FOR_DETAILS: u16 = 12;
/// Width of the screen below which texts are shortened.
const NARROW: u16 = 70;
/// Rows or lines that PgUp and PgDn move by.
const PAGE: isize = 20;

/// Shows the processes until the user quits.
///
/// # Errors
/// Fails if the terminal cannot be drawn on, or if the processes cannot be listed.
pub fn show(sampler: &mut Sampler, interval: Duration, console: &Console) -> Result<()> {
    let look = sampler.look().context("cannot list the processes")?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let mut dashboard = Dashboard {
        list: List::new(look),
        first: 0,
        view: View::List,
        console,
    };
    let shown = dashboard.run(&mut terminal, sampler, interval);
    ratatui::restore();
    shown
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
        terminal: &mut DefaultTerminal,
        sampler: &mut Sampler,
        interval: Duration,
    ) -> Result<()> {
        let mut due = Instant::now() + sampler.pause(interval);
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let left = due.saturating_duration_since(Instant::now());
            let wish = match event::poll(left)? {
                true => self.event(&event::read()?),
                false => Wish::Sample,
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

    /// Handles an event. After a resize, the caller draws the screen again in any case.
    fn event(&mut self, event: &Event) -> Wish {
        let Event::Key(key) = event else {
            return Wish::GoOn;
        };
        if key.kind != KeyEventKind::Press {
            return Wish::GoOn;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Wish::End;
        }
        match &mut self.view {
            View::List => return self.key_in_list(key),
            View::Filter => self.key_in_filter(key),
            View::Page(_) => self.key_in_page(key),
        }
        Wish::GoOn
    }

    fn key_in_list(&mut self, key: &KeyEvent) -> Wish {
        match key.code {
            KeyCode::Char('q') => return Wish::End,
            KeyCode::Char('r') => return Wish::Sample,
            KeyCode::Char('s') => self.list.next_order(),
            KeyCode::Char('/') => self.view = View::Filter,
            KeyCode::Char('?') => self.view = View::Page(Page::help()),
            KeyCode::Esc => self.list.set_filter(""),
            KeyCode::Enter => {
                if let Some(row) = self.list.selected() {
                    self.view = View::Page(Page::explain(row.pid, self.console));
                }
            }
            code => self.list.select(movement(code).unwrap_or(0)),
        }
        Wish::GoOn
    }

    fn key_in_filter(&mut self, key: &KeyEvent) {
        let mut filter = self.list.filter().to_owned();
        match key.code {
            KeyCode::Enter => self.view = View::List,
            KeyCode::Esc => {
                filter.clear();
                self.view = View::List;
            }
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Char(letter) => filter.push(letter),
            _ => {}
        }
        self.list.set_filter(&filter);
    }

    fn key_in_page(&mut self, key: &KeyEvent) {
        let View::Page(page) = &mut self.view else {
            return;
        };
        match (key.code, page.pid) {
            (KeyCode::Char('q' | '?') | KeyCode::Esc | KeyCode::Enter, _) => self.view = View::List,
            (KeyCode::Char('r'), Some(pid)) => *page = Page::explain(pid, self.console),
            (code, _) => page.scroll(movement(code).unwrap_or(0)),
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let parts = [Constraint::Fill(1), Constraint::Length(1)];
        let [middle, bottom] = Layout::vertical(parts).areas(frame.area());
        match &mut self.view {
            View::Page(page) => page.draw(frame, middle),
            View::List | View::Filter => self.draw_list(frame, middle),
        }
        let keys = Line::from(self.keys(bottom.width)).style(Style::new().fg(Color::Cyan));
        frame.render_widget(keys, bottom);
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let details = if area.height >= ROOM_FOR_DETAILS {
            4
        } else {
            0
        };
        let parts = [
            Constraint::Length(2),
            Constraint::Fill(1),
            Constraint::Length(details),
        ];
        let [top, middle, bottom] = Layout::vertical(parts).areas(area);
        let heading = Line::from(self.heading(area.width));
        let summary = Line::from(brief(self.list.look(), area.width));
        frame.render_widget(Paragraph::new(vec![summary, heading]), top);
        // The first line of the table has the headings.
        let room = usize::from(middle.height).saturating_sub(1).max(1);
        let at = self.list.position();
        self.first = self.first.clamp((at + 1).saturating_sub(room), at);
        let rows = self.list.rows(self.first, room);
        let table = table::table(rows, area.width, self.console);
        let mut selected = TableState::default().with_selected(at - self.first);
        frame.render_stateful_widget(table, middle, &mut selected);
        if let Some(row) = self.list.selected() {
            let lines = details_of(row).map(|line| Line::from(printable(&line)));
            let border = Block::new().borders(Borders::TOP);
            let details = Paragraph::new(Vec::from(lines)).block(border);
            frame.render_widget(details, bottom);
        }
    }

    fn heading(&self, width: u16) -> String {
        let order = format!("sorted by {}", self.list.order().name());
        let shown = count(self.list.len() as u64);
        match self.list.filter() {
            "" => order,
            filter if width < NARROW => format!("{shown} with `{}`", printable(filter)),
            filter => format!("{order}; {shown} with `{}`", printable(filter)),
        }
    }

    fn keys(&self, width: u16) -> String {
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
fn movement(key: KeyCode) -> Option<isize> {
    Some(match key {
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::PageDown | KeyCode::Char(' ') => PAGE,
        KeyCode::PageUp => -PAGE,
        KeyCode::End => isize::MAX,
        KeyCode::Home => isize::MIN,
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
fn brief(look: &Look, width: u16) -> String {
    let whole = summary(look);
    if whole.len() <= usize::from(width) {
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
