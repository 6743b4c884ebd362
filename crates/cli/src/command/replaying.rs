//! Replaying of a trace, shared by `run` and `replay`.

use crate::policy_table::{self, Without};
use anyhow::anyhow;
use clap::Args;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;
use vmarea_explain::places::Places;
use vmarea_explain::recorded::CallStacks;
use vmarea_explain::stacks::Stacks;
use vmarea_explain::text::count;
use vmarea_replay::{MostShown, Options, PolicyName, Replayer, Report};
use vmarea_report::page::{self, Names};
use vmarea_report::timeline::Collector;
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Failure, Result, Status};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg};
use vmarea_terminal::progress::Meter;
use vmarea_trace::{Error as TraceError, Reader};

/// The policies of a replay, the number of differences to show, and the destination of the result.
#[derive(Debug, Args)]
pub struct ReplayingArgs {
    /// Replay under this policy; may be given several times. `linux`, the rules of the recorded
    /// kernel, is always included, and only its results are compared with the kernel's. Switches
    /// and rules follow the name: `vmarea+copy_budget=64`, `thesis+collector`,
    /// `linux-6.12+mremap_many`; an unknown switch prints the list of all switches. A name that
    /// ends with `.toml` or contains `/` is a policy file (docs/policies.md)
    #[arg(long = "policy", value_name = "POLICY", default_values = ["linux", "linux-5.10", "thesis", "vmarea"])]
    policies: Vec<PolicyName>,

    /// Replay also without each switch of each policy, and show how many VMAs the switch saves
    #[arg(long)]
    leave_one_out: bool,

    #[command(flatten)]
    json: JsonArg,

    #[command(flatten)]
    page: PageArg,

    /// Show N differences for each cause, or all of them, in the text and in the JSON, each with
    /// the call before it
    #[arg(long, value_name = "N|all", default_value = "1")]
    differences: MostShown,
}

/// Open destinations of the result of a replay.
#[derive(Debug)]
pub struct Destinations {
    outputs: Outputs,
    page: Option<Output>,
}

/// The result of a replay.
#[derive(Debug)]
pub struct Replayed {
    report: Report,
    page: Option<String>,
}

/// Stacks of the calls in a trace; empty if they were not recorded.
#[derive(Default)]
pub struct RecordedStacks {
    /// Number of the stack of each call.
    pub calls: CallStacks,
    /// The stacks.
    pub stacks: Stacks,
}

impl ReplayingArgs {
    /// True if the result is also written as a page, which shows the stacks of the calls.
    pub fn wants_page(&self) -> bool {
        self.page.html.is_some()
    }

    /// Replays a trace and compares it with the kernel's results.
    ///
    /// A trace that was cut off or damaged is replayed up to that point, and a note says so.
    ///
    /// # Errors
    /// Fails if the trace cannot be replayed.
    pub fn replay(
        &self,
        console: &Console,
        trace: File,
        recorded: RecordedStacks,
    ) -> Result<Replayed> {
        let total = trace.metadata()?.len();
        let position = Rc::new(Cell::new(0));
        let mut reader = Reader::new(Counting(trace, Rc::clone(&position)))?;
        let header = reader.header().clone();
        let mut replayer = Replayer::new(&header, &self.options())?;
        let RecordedStacks { calls, stacks } = recorded;
        let mut places = Places::new(calls.clone());
        let mut collector = (self.wants_page()).then(|| Collector::new(&header, calls));
        let mut torn = None;
        let mut meter = Meter::of_bytes(console, "replaying", total);
        let mut events = 0u64;
        for event in &mut reader {
            let event = match event {
                Ok(event) => event,
                Err(end @ (TraceError::CutOff { .. } | TraceError::Damaged { .. }))
                    if events > 0 =>
                {
                    console.note(&end.to_string());
                    torn = Some(end.to_string());
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            replayer.event(&event)?;
            places.follow(&event);
            if let Some(collector) = &mut collector {
                collector.event(&event, &mut replayer);
            }
            events += 1;
            if events.is_multiple_of(4096) {
                meter.at(position.get(), || format!("{} events", count(events)));
            }
        }
        if events == 0 {
            return Err(Failure::new(
                Status::NothingToDo,
                anyhow!("the trace has no events"),
            ));
        }
        let timeline = collector.map(|collector| collector.finish(&replayer));
        let mut report = replayer.finish();
        places.name(&mut report.failed_calls, &stacks);
        for note in &report.notes {
            console.note(note);
        }
        let page = timeline.map(|timeline| {
            let page = page::Replayed {
                header: &header,
                report: &report,
                timeline: &timeline,
                names: &Names::of(&stacks),
                torn: torn.as_deref(),
            };
            page.page()
        });
        Ok(Replayed { report, page })
    }

    fn options(&self) -> Options {
        let mut policies = self.policies.clone();
        policies.extend(self.without().map(|(.., named)| named));
        Options {
            policies,
            shown: self.differences,
            ..Options::default()
        }
    }

    /// Returns each policy without one of its switches, if that is wanted: the policy, the switch,
    /// and what remains.
    fn without(&self) -> impl Iterator<Item = Without> {
        let policies = self.policies.iter().filter(|_| self.leave_one_out);
        policies.flat_map(|named| {
            let without = named.leave_one_out().into_iter();
            without.map(|(switch, rest)| (named.policy().name, switch, rest))
        })
    }

    /// Opens the destinations early, so that an unwritable destination fails at once.
    ///
    /// # Errors
    /// Fails if a file cannot be created.
    pub fn outputs(&self) -> Result<Destinations> {
        let page = self.page.html.as_ref();
        Ok(Destinations {
            outputs: Outputs::open_beside(self.json.json.as_ref(), &[page])?,
            page: Output::open_if_given(page, Kind::HTML)?,
        })
    }

    /// Prints the report in the requested forms and returns the verdict.
    ///
    /// # Errors
    /// Fails if the report cannot be written.
    pub fn print(
        &self,
        console: &Console,
        destinations: Destinations,
        replayed: &Replayed,
    ) -> Result {
        let Replayed { report, page } = replayed;
        let without: Vec<_> = self.without().collect();
        let Destinations {
            outputs,
            page: file,
        } = destinations;
        outputs.write(console, report, |out| {
            policy_table::write(out, report, &without)
        })?;
        if let (Some(file), Some(page)) = (file, page) {
            file.write(console, page.as_bytes())?;
        }
        if report.verify.differences > 0 {
            Ok(Exit::Differs)
        } else {
            Ok(Exit::Ok)
        }
    }
}

/// A file that counts the bytes read from it.
struct Counting(File, Rc<Cell<u64>>);

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.0.read(buffer)?;
        self.1.set(self.1.get() + got as u64);
        Ok(got)
    }
}
