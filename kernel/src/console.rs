//! The serial line: output from the kernel and from programs, and keyboard input.
//!
//! Output waits until the serial line is ready. The timer interrupt reads input from the serial
//! line ([`poll`]), and the terminal (`files::terminal`) assembles the input into lines.

use core::fmt::{self, Write};
use spin::Mutex;
use x86_64::instructions::port::Port;

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = 0x3fd;
const RECEIVED: u8 = 1;
const CAN_SEND: u8 = 0x20;
/// Port of QEMU's `isa-debug-exit`.
const EXIT: u16 = 0xf4;

/// The first serial port.
#[derive(Debug)]
pub struct Console(());

/// The console; its lock prevents CPUs from mixing their output within a line.
pub static CONSOLE: Mutex<Console> = Mutex::new(Console(()));

impl Console {
    fn send(&mut self, byte: u8) {
        // SAFETY: the ports of the first serial port; reading and writing them changes no memory.
        unsafe {
            while Port::<u8>::new(LINE_STATUS).read() & CAN_SEND == 0 {}
            Port::new(DATA).write(byte);
        }
    }

    /// Sends bytes, with a carriage return before each line feed.
    pub fn send_text(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.send(b'\r');
            }
            self.send(byte);
        }
    }
}

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send_text(text.as_bytes());
        Ok(())
    }
}

/// Returns a byte that the serial line has received, or `None` if no byte is pending.
pub fn poll() -> Option<u8> {
    // SAFETY: the ports of the first serial port, as in `send`.
    unsafe { (Port::<u8>::new(LINE_STATUS).read() & RECEIVED != 0).then(|| Port::new(DATA).read()) }
}

/// Prints a kernel message on a line of its own.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => {{
        use core::fmt::Write;
        let mut console = $crate::console::CONSOLE.lock();
        let _ = console.write_str("vmarea: ");
        let _ = writeln!(console, $($part)*);
    }};
}

/// Exits QEMU with the status `2 * code + 1`.
pub fn exit(code: u32) -> ! {
    // SAFETY: the port belongs to `isa-debug-exit`, or to nothing.
    unsafe { Port::new(EXIT).write(code) };
    loop {
        x86_64::instructions::hlt();
    }
}
