//! Benchmark of writing and reading a trace, compared with events in postcard under the same zstd
//! compression.
//!
//! Prints the nanoseconds and the bytes per event of both formats, and their ratio. Every round
//! measures both formats, so a disturbance affects both. The times are the medians over all rounds.

use std::hint::black_box;
use std::time::Instant;
use vmarea_trace::event::{
    Access, Call, Event, Fault, FaultSource, Header, MmId, MmStart, Order, Origin, Tid,
};
use vmarea_trace::{Reader, Writer};

const ROUNDS: usize = 9;
const EVENTS: u64 = 200_000;
/// Compression level of the writer.
const LEVEL: i32 = 3;
const MPROTECT: u32 = 10;

fn header() -> Header {
    Header {
        kernel_release: "6.18.0".to_owned(),
        machine: "x86_64".to_owned(),
        page_size: 4096,
        settings: Default::default(),
        command: vec!["bench".to_owned()],
        faults: FaultSource::Tracepoints,
        kernel_view: false,
        writer: "bench".to_owned(),
        started_unix_ms: None,
    }
}

/// Returns the events of two threads that access random pages; every tenth event is a call.
fn events() -> Vec<Event> {
    let mm = MmId(1);
    let mut random = 7_u64;
    let mut events = vec![Event::MmStart(MmStart {
        mm,
        t: 0,
        origin: Origin::Exec,
    })];
    for n in 0..EVENTS {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let tid = Tid(100 + (random >> 63) as i32);
        let addr = 0x7f00_0000_0000 + ((random >> 40) & 0x3ff) * 4096;
        let t = 1_000 + n * 700 + (random >> 56);
        events.push(if n % 10 == 9 {
            Event::Call(Call {
                tid,
                mm,
                nr: MPROTECT,
                args: [addr, 4096, 1, 0, 0, 0],
                ret: 0,
                t,
                order: Order::Exact,
                file: None,
                data: Vec::new(),
            })
        } else {
            Event::Fault(Fault {
                tid,
                mm,
                addr,
                access: Access::Write,
                kernel: false,
                t,
                order: Order::Exact,
            })
        });
    }
    events.push(Event::End { status: 0, t: 0 });
    events
}

fn write(events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header()).unwrap();
    for event in events {
        writer.write(event).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

fn read(bytes: &[u8]) -> usize {
    let reader = Reader::new(bytes).unwrap();
    reader.fold(0, |events, event| {
        black_box(event.unwrap());
        events + 1
    })
}

fn write_postcard(events: &[Event]) -> Vec<u8> {
    let plain = events.iter().fold(Vec::new(), |bytes, event| {
        postcard::to_extend(event, bytes).unwrap()
    });
    zstd::bulk::compress(&plain, LEVEL).unwrap()
}

fn read_postcard(bytes: &[u8]) -> usize {
    let plain = zstd::stream::decode_all(bytes).unwrap();
    let (mut rest, mut events) = (&plain[..], 0);
    while !rest.is_empty() {
        let (event, after) = postcard::take_from_bytes::<Event>(rest).unwrap();
        black_box(event);
        (rest, events) = (after, events + 1);
    }
    events
}

/// Returns the time that `f` takes, in nanoseconds.
fn time<T>(f: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    black_box(f());
    begin.elapsed().as_secs_f64() * 1e9
}

/// Returns the median of one measurement over all rounds, divided by the number of items.
fn median<const N: usize>(rounds: &[[f64; N]], column: usize, items: usize) -> f64 {
    let mut times: Vec<f64> = rounds.iter().map(|round| round[column]).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2] / items as f64
}

fn main() {
    let events = events();
    let (trace, peer) = (write(&events), write_postcard(&events));
    assert_eq!(read(&trace), read_postcard(&peer));
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            [
                time(|| write(&events)),
                time(|| write_postcard(&events)),
                time(|| read(&trace)),
                time(|| read_postcard(&peer)),
            ]
        })
        .collect();
    let median = |column| median(&rounds, column, events.len());
    let size = |bytes: usize| bytes as f64 / events.len() as f64;
    println!(
        "{:<14} {:>9} {:>9} {:>6}",
        "per event", "trace", "postcard", "ratio"
    );
    for (what, ours, peer) in [
        ("write, ns", median(0), median(1)),
        ("read, ns", median(2), median(3)),
        ("size, bytes", size(trace.len()), size(peer.len())),
    ] {
        println!("{what:<14} {ours:>9.2} {peer:>9.2} {:>6.2}", ours / peer);
    }
}
