//! `--html`: the result of a command as a page, one file that needs no network.

use crate::outputs::Target;
use clap::Args;

/// The `--html` option, which has the same form in every command.
#[derive(Debug, Args)]
pub struct PageArg {
    /// Write the result as a page with pictures to FILE, or with `-` to standard output in place of
    /// the text: one file that needs no network
    #[arg(long, value_name = "FILE|-")]
    pub html: Option<Target>,
}
