//! Tests of the oracle with known results.

use super::{Access, Oracle};

const ARENA: u64 = 0x10_0000_0000;
const PRIVATE_FIXED: u64 = 0x32;

fn map(oracle: &mut Oracle, process: usize, addr: u64, len: u64, prot: u64) -> Result<u64, i32> {
    let args = [addr, len, prot, PRIVATE_FIXED, u64::MAX, 0];
    oracle.call(process, libc::SYS_mmap, args).unwrap()
}

#[test]
fn calls_and_accesses_are_answered() {
    let mut oracle = Oracle::start().unwrap();
    assert_eq!(
        oracle.read(0, ARENA).unwrap(),
        Access::Signal {
            signal: libc::SIGSEGV,
            code: 1
        }
    );
    assert_eq!(map(&mut oracle, 0, ARENA, 0x2000, 3), Ok(ARENA));
    assert_eq!(map(&mut oracle, 0, ARENA, 0, 3), Err(libc::EINVAL));
    assert_eq!(oracle.read(0, ARENA).unwrap(), Access::Done(0));
    assert_eq!(oracle.write(0, ARENA + 8, 42).unwrap(), Access::Done(0));
    assert_eq!(oracle.read(0, ARENA + 8).unwrap(), Access::Done(42));
    assert_eq!(map(&mut oracle, 0, ARENA, 0x1000, 1), Ok(ARENA));
    assert_eq!(
        oracle.write(0, ARENA, 1).unwrap(),
        Access::Signal {
            signal: libc::SIGSEGV,
            code: 2
        }
    );
}

#[test]
fn processes_fork_and_the_first_may_end_first() {
    let mut oracle = Oracle::start().unwrap();
    map(&mut oracle, 0, ARENA, 0x2000, 3).unwrap();
    oracle.write(0, ARENA, 1).unwrap();
    oracle.fork(0, 1).unwrap().unwrap();
    oracle.write(0, ARENA, 2).unwrap();
    oracle.fork(1, 2).unwrap().unwrap();
    oracle.exit(0).unwrap();
    assert!(oracle.read(0, ARENA).is_err());
    oracle.write(2, ARENA, 3).unwrap();
    let mut bytes = [0; 16];
    let copied = oracle.memory(1, &[ARENA, ARENA + 4096], 8, &mut bytes);
    assert_eq!(copied.unwrap(), 16);
    assert_eq!(bytes[0], 1);
    assert_eq!(oracle.read(2, ARENA).unwrap(), Access::Done(3));
    oracle.fork(2, 0).unwrap().unwrap();
    assert_eq!(oracle.read(0, ARENA).unwrap(), Access::Done(3));
}
