//! The terminal interface of `top`: a table that is redrawn after each sample.
//!
//! Between two samples nothing is read, and only a key press redraws the table.

use crate::console::{Console, count};
use crate::exit::Result;
use anyhow::Context;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row as TableRow, Table, TableState};
use ratatui::{DefaultTerminal, Frame};
use std::cmp::Reverse;
use std::time::{Duration, Instant};
use vmarea_explain::top::{Look, ProcessRow, Sampler};
use vmarea_process::rights::{self, Capability};

/// Sort order of the processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Mappings,
    Trend,
    Mergeable,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Mappings => Order::Trend,
            Order::Trend => Order::Mergeable,
            Order::Mergeable => Order::Mappings,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Mappings => "mappings",
            Order::Trend => "trend",
            Order::Mergeable => "mergeable",
        }
    }

    fn sort(self, rows: &mut [ProcessRow]) {
        match self {
            Order::Mappings => rows.sort_by_key(|row| (Reverse(row.mappings), row.pid)),
            Order::Mergeable => rows.sort_by_key(|row| (Reverse(row.joinable), row.pid)),
            Order::Trend => rows.sort_by(|a, b| {
                let trend = |row: &ProcessRow| row.per_minute.unwrap_or(0.0);
                trend(b).total_cmp(&trend(a)).then(a.pid.cmp(&b.pid))
            }),
        }
    }
}

/// Shows the processes until the user quits.
///
/// # Errors
/// Fails if the terminal cannot be drawn on, or if the processes cannot be listed.
pub fn show(sampler: &mut Sampler, interval: Duration, console: &Console) -> Result<()> {
    let look = sampler.look().context("cannot list the processes")?;
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let mut dashboard = Dashboard {
        look,
        order: Order::Mappings,
        selected: TableState::default().with_selected(0),
        console,
    };
    let shown = dashboard.run(&mut terminal, sampler, interval);
    ratatui::restore();
    shown
}

struct Dashboard<'a> {
    look: Look,
    order: Order,
    selected: TableState,
    console: &'a Console,
}

/// Action that a key requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    GoOn,
    End,
}

impl Dashboard<'_> {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        sampler: &mut Sampler,
        interval: Duration,
    ) -> Result<()> {
        let mut due = Instant::now() + interval;
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let left = due.saturating_duration_since(Instant::now());
            if event::poll(left)? {
                if let Event::Key(key) = event::read()?
                    && self.key(key) == Wish::End
                {
                    return Ok(());
                }
            } else {
                self.look = sampler.look().context("cannot list the processes")?;
                self.order.sort(&mut self.look.rows);
                due = Instant::now() + interval;
            }
        }
    }

    fn key(&mut self, key: KeyEvent) -> Wish {
        if key.kind != KeyEventKind::Press {
            return Wish::GoOn;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Wish::End,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Wish::End;
            }
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.order.sort(&mut self.look.rows);
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected.select_next(),
            KeyCode::Up | KeyCode::Char('k') => self.selected.select_previous(),
            KeyCode::PageDown => self.selected.scroll_down_by(20),
            KeyCode::PageUp => self.selected.scroll_up_by(20),
            KeyCode::Home => self.selected.select_first(),
            _ => {}
        }
        Wish::GoOn
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let parts = [
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [top, middle, bottom] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Line::from(summary(&self.look)), top);
        let strong = Style::new().add_modifier(Modifier::BOLD);
        let headings = [
            "PID",
            "MAPPINGS",
            "OF LIMIT",
            "",
            "PER MIN",
            "MERGEABLE?",
            "SIZE",
            "NAME",
        ];
        let widths = [8, 10, 9, 20, 9, 10, 11, 20].map(Constraint::Length);
        let rows = self.look.rows.iter().map(|row| cells(row, self.console));
        let table = Table::new(rows, widths)
            .header(TableRow::new(headings).style(strong))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, middle, &mut self.selected);
        let selected = self.selected.selected();
        let pid = selected
            .and_then(|n| self.look.rows.get(n))
            .map(|row| row.pid);
        let next = pid.map_or_else(String::new, |pid| {
            format!("   why: vmarea explain -p {pid}")
        });
        let help = format!("q quit   s order: {}   ↑↓ choose{next}", self.order.name());
        frame.render_widget(Line::from(help).style(Style::new().fg(Color::Cyan)), bottom);
    }
}

fn cells(row: &ProcessRow, console: &Console) -> TableRow<'static> {
    let colour = match row.percent_of_limit {
        share if share >= 70.0 => Color::Red,
        share if share >= 30.0 => Color::Yellow,
        _ => Color::Green,
    };
    let trend = match row.per_minute {
        Some(change) if change.abs() >= 0.5 => format!("{change:+.0}"),
        Some(_) => "0".to_owned(),
        None => "-".to_owned(),
    };
    let name: String = row.name.chars().filter(|c| !c.is_control()).collect();
    TableRow::new(vec![
        Cell::from(row.pid.to_string()),
        Cell::from(count(row.mappings)),
        Cell::from(format!("{:.1} %", row.percent_of_limit)),
        Cell::from(bar(row.percent_of_limit)).style(Style::new().fg(colour)),
        Cell::from(trend),
        Cell::from(count(row.joinable)),
        Cell::from(console.size(row.virtual_bytes).to_string()),
        Cell::from(name),
    ])
}

/// Draws a bar of 20 characters for a percentage.
fn bar(percent: f64) -> String {
    let full = (percent / 5.0).round().clamp(0.0, 20.0) as usize;
    "█".repeat(full) + &"·".repeat(20 - full)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, mappings: u64, joinable: u64, per_minute: f64) -> ProcessRow {
        ProcessRow {
            pid,
            name: "x".to_owned(),
            mappings,
            percent_of_limit: 0.0,
            per_minute: Some(per_minute),
            joinable,
            virtual_bytes: 0,
        }
    }

    #[test]
    fn processes_are_ordered_as_asked() {
        let mut rows = [row(1, 10, 5, 0.0), row(2, 30, 1, 4.0), row(3, 20, 9, -2.0)];
        let mut order = Order::Mappings;
        for expected in [[2, 3, 1], [2, 1, 3], [3, 1, 2]] {
            order.sort(&mut rows);
            assert_eq!(rows.each_ref().map(|row| row.pid), expected, "{order:?}");
            order = order.next();
        }
        assert_eq!(order, Order::Mappings);
    }

    #[test]
    fn a_bar_is_always_as_wide() {
        for percent in [-1.0, 0.0, 49.9, 100.0, 250.0, f64::NAN] {
            assert_eq!(bar(percent).chars().count(), 20);
        }
    }
}
