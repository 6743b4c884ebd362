//! Threads of the standard library, which sleep.
use std::{env, io::Write, thread, time::Duration};
fn main() {
    let count = env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let all: Vec<_> = (0..count).map(|_| thread::spawn(|| thread::sleep(Duration::from_secs(600)))).collect();
    println!("ready");
    std::io::stdout().flush().unwrap();
    for one in all {
        one.join().unwrap();
    }
}
