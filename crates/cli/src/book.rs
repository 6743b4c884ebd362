//! The Rust examples of the book, which the documentation tests compile and run.

/// The chapter on embedding.
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

/// The chapter on the trace format.
#[doc = include_str!("../../../docs/trace-format.md")]
struct TraceFormat;

/// The chapter on policies.
#[doc = include_str!("../../../docs/policies.md")]
struct Policies;
