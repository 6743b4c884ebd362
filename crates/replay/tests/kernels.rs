//! Recordings of kernels other than that of the corpus: replays give these kernels' results.
//!
//! `recorded/linux-7.3.vmtrace`: on Debian's 7.3.4 under QEMU, a shell that starts three Perl programs, each of which
//! forks, and the program of `ci/run commands`.
#![forbid(unsafe_code)]

use std::path::Path;
use vmarea_replay::{Options, Replayer};
use vmarea_trace::Reader;

#[test]
fn programs_on_linux_7_3_give_its_results() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let reader = Reader::open(folder.join("linux-7.3.vmtrace")).expect("a trace");
    let mut replayer = Replayer::new(reader.header(), &Options::default()).expect("its rules");
    for event in reader {
        replayer.event(&event.expect("an event")).expect("a step");
    }
    let report = replayer.finish();
    let first = report.first_difference.map(|difference| difference.cause);
    assert_eq!((report.verify.differences, first), (0, None));
    assert_eq!((report.verify.undecided, report.verify.resyncs), (0, 0));
    assert_eq!(report.verify.vmas_compared, 366);
}
