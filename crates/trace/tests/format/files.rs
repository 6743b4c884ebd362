//! Trace files in memory, for the other tests.

use vmarea_trace::event::{Access, Event, Fault, Header, MmId, Order, Tid};
use vmarea_trace::{Error, Reader, Writer};

/// Writes `events` to a file in memory, with a flush after every `per_block` events.
pub fn file(header: &Header, events: &[Event], per_block: usize) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    for chunk in events.chunks(per_block) {
        for event in chunk {
            writer.write(event).unwrap();
        }
        writer.flush().unwrap();
    }
    writer.finish().unwrap()
}

/// Returns all events before the end or the error, and the error.
pub fn read(file: &[u8]) -> (Vec<Event>, Option<Error>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    for result in &mut reader {
        match result {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(reader.next().is_none(), "something follows an error");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

/// Returns `len` faults of one thread at ascending addresses, followed by [`Event::End`].
pub fn walk(len: u64) -> Vec<Event> {
    let fault = |i: u64| {
        Event::Fault(Fault {
            tid: Tid(100),
            mm: MmId(1),
            addr: 0x7f12_3456_7000 + i * 4096 + i * 7919 % 4096,
            access: Access::Write,
            kernel: i.is_multiple_of(10),
            t: 1_000_000_000_000 + i * 2400 + i * 104_729 % 700,
            order: Order::Exact,
        })
    };
    let end = Event::End {
        status: 0,
        t: 1_000_000_000_000 + len * 2400,
    };
    (0..len).map(fault).chain([end]).collect()
}
