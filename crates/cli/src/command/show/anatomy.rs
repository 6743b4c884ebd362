//! `vmarea show anatomy`: locations of the parts of a process.

use super::page;
use super::target::TargetArgs;
use clap::Args;
use vmarea_process::mappings::Smaps;
use vmarea_report::anatomy::{self, Fold, Symbols};
use vmarea_terminal::console::Console;
use vmarea_terminal::exit::{Exit, Result};
use vmarea_terminal::kind::Kind;
use vmarea_terminal::outputs::{JsonArg, Output, Outputs, PageArg, Target};

/// Draw the layout of a process: binary image, variables, heap, mappings, stack.
///
/// The drawing goes from high addresses to low ones. It shows sizes and gaps, and the addresses of
/// functions, constants and variables of each kind, labelled with their symbol names. Beside it are
/// the reasons why neighbouring mappings are apart, and the number of mappings by size.
#[derive(Debug, Args)]
pub struct Anatomy {
    #[command(flatten)]
    pub(super) target: TargetArgs,

    /// Show each mapping with its flags, even if there are many
    #[arg(long)]
    all: bool,

    /// Do not read the program's file: a recording then gives the same drawing on every machine
    #[arg(long)]
    no_symbols: bool,

    /// Write a drawing to FILE, or with `-` to standard output
    #[arg(long, value_name = "FILE|-")]
    svg: Option<Target>,

    #[command(flatten)]
    json: JsonArg,

    #[command(flatten)]
    page: PageArg,
}

impl Anatomy {
    pub(super) fn run(&self, console: &Console) -> Result {
        let svg = Output::open_if_given(self.svg.as_ref(), Kind::SVG)?;
        let html = self.page.html.as_ref();
        let outputs = Outputs::open_beside(self.json.json.as_ref(), &[self.svg.as_ref(), html])?;
        let html = Output::open_if_given(html, Kind::HTML)?;
        let (fold, smaps) = match self.all {
            true => (Fold::None, Smaps::WithoutView),
            false => (Fold::Small, Smaps::Never),
        };
        let symbols = match self.no_symbols {
            true => Symbols::Skip,
            false => Symbols::Read,
        };
        let shown = self.target.shown(console, smaps)?;
        let anatomy = anatomy::Anatomy::new(&shown, fold, symbols);
        let size = |bytes| console.size(bytes).to_string();
        if let Some(svg) = svg {
            svg.write(console, anatomy.svg(&size).as_bytes())?;
        }
        if let Some(html) = html {
            html.write(console, page::page(&shown).as_bytes())?;
        }
        outputs.write(console, &anatomy, |out| anatomy.write_text(out, &size))?;
        Ok(Exit::Ok)
    }
}
