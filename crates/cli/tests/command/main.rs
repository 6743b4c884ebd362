//! The command as people and scripts use it: each module tests one command, or one question about all of them.
//!
//! One program, so that the crates below are linked once. `support` runs the command and the
//! programs of `tests/programs`.
#![forbid(unsafe_code)]

mod support;

mod advice;
mod attach;
mod bad_input;
mod beyond;
mod command_line;
mod compare;
mod differences;
mod explain;
mod explain_elsewhere;
mod explain_programs;
mod export;
mod failed_calls;
mod keep_merged;
mod kernel_rules;
mod merge;
mod merge_copied;
mod merge_interrupted;
mod merge_refused;
mod merge_running;
mod messages;
mod moments;
mod noticed;
mod outcomes;
mod own_policy;
mod page;
mod prevention;
mod schemas;
mod show;
mod stacks;
mod thesis;
mod top;
mod top_keys;
mod width;
mod wrong_usage;
