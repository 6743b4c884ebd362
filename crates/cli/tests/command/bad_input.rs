//! Invalid input.
//!
//! The command must print one line that says what to do, return the right exit status, and leave no
//! output that looks complete.

use crate::support::vmarea;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use vmarea_trace::Writer;
use vmarea_trace::event::{Event, Header};

/// Returns vmarea's one-line error message, without the recorded program's own output.
fn complaint(output: &Output, status: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    let last = text.lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("vmarea: "), "who speaks? {text}");
    assert!(!text.contains("panicked"), "{text}");
    last
}

/// Writes a made-up trace that contains two events.
fn small_trace(path: &Path, page_size: u32) {
    let header = Header {
        kernel_release: "6.18.0".into(),
        machine: "x86_64".into(),
        page_size,
        ..Header::default()
    };
    let mut writer = Writer::create(path, &header).unwrap();
    writer.write(&Event::Note("a note".into())).unwrap();
    writer.write(&Event::End { status: 0, t: 1 }).unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_trace_of_a_newer_version_is_refused_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.vmtrace");
    small_trace(&path, 4096);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8..12].copy_from_slice(&900u32.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let text = complaint(&vmarea(&["replay", path.to_str().unwrap()]), 1);
    assert!(text.contains("900") && text.contains("newer"), "{text}");
}

#[test]
fn a_trace_from_another_page_size_is_refused_by_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.vmtrace");
    small_trace(&path, 16384);
    let text = complaint(&vmarea(&["replay", path.to_str().unwrap()]), 1);
    assert!(text.contains("16384"), "{text}");
}

#[test]
fn a_damaged_trace_is_named_with_block_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.vmtrace");
    small_trace(&path, 4096);
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x55;
    std::fs::write(&path, bytes).unwrap();
    let text = complaint(&vmarea(&["trace", "dump", path.to_str().unwrap()]), 1);
    assert!(text.contains("block 1") && text.contains("byte"), "{text}");
}

#[test]
fn a_full_disk_ends_the_recording_and_says_so() {
    let text = complaint(&vmarea(&["record", "-o", "/dev/full", "--", "true"]), 1);
    assert!(
        text.starts_with("vmarea: no space left for the trace after "),
        "{text}"
    );
}

#[test]
fn a_reader_that_leaves_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    // The reader takes ten bytes and leaves; at the end, the trace is written to nobody.
    let script =
        "mkfifo \"$1\" && (head -c 10 \"$1\" >/dev/null &) && \"$0\" record -o \"$1\" -- sleep 2.5";
    let pipe = folder.path().join("pipe");
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_vmarea")])
        .arg(&pipe)
        .output()
        .unwrap();
    let text = complaint(&output, 1);
    assert!(
        text.starts_with("vmarea: cannot write the trace after "),
        "{text}"
    );
    assert_eq!(text.matches("cannot write").count(), 1, "{text}");
}

#[test]
fn an_input_that_may_never_end_or_is_too_large_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let large = folder.path().join("large");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len((16 << 30) + 1).unwrap();
    let output = folder.path().join("t.vmtrace");
    let output = output.to_str().unwrap();
    for (input, reason) in [
        (pipe.to_str().unwrap(), "it is a pipe, which may never end"),
        ("/dev/zero", "it is a device, which may never end"),
        (large.to_str().unwrap(), "it is larger than "),
    ] {
        for command in [
            &["trace", "import", "--from", "strace", "-o", output, input][..],
            &["explain", "--from", input],
            &["show", "diff", input, input],
        ] {
            let said = vmarea(command);
            let text = complaint(&said, 1);
            let needed = format!("vmarea: cannot read {input}: {reason}");
            assert!(text.starts_with(&needed), "{command:?}: {text}");
            assert_eq!(String::from_utf8_lossy(&said.stderr).lines().count(), 1);
        }
    }
}

#[test]
fn a_file_that_is_no_program_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "text\n").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let path = plain.to_str().unwrap();
    assert!(complaint(&vmarea(&["run", "--", path]), 1).contains(path));

    let folder = folder.path().to_str().unwrap();
    assert!(complaint(&vmarea(&["run", "--", folder]), 1).contains(folder));
}

/// Returns a static i386 program that only calls `exit(7)`.
fn i386_program() -> Vec<u8> {
    let entry: u32 = 0x0804_8000 + 52 + 32;
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let length = 52 + 32 + code.len() as u32;
    let mut elf = vec![0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half =
        |out: &mut Vec<u8>, values: &[u16]| values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    let word =
        |out: &mut Vec<u8>, values: &[u32]| values.iter().for_each(|v| out.extend(v.to_le_bytes()));
    half(&mut elf, &[2, 3]); // executable, i386
    word(&mut elf, &[1, entry, 52, 0, 0]);
    half(&mut elf, &[52, 32, 1, 40, 0, 0]);
    word(
        &mut elf,
        &[1, 0, 0x0804_8000, 0x0804_8000, length, length, 5, 0x1000],
    );
    elf.extend(code);
    elf
}

#[test]
fn a_32_bit_program_is_refused_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("i386");
    std::fs::write(&path, i386_program()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = path.to_str().unwrap();
    let alone = Command::new(path).status();
    if alone.ok().and_then(|status| status.code()) != Some(7) {
        return; // this kernel runs no 32-bit programs
    }
    let text = complaint(&vmarea(&["run", "--", path]), 1);
    assert!(text.contains("32-bit"), "{text}");
}

#[test]
fn a_program_that_is_already_traced_is_refused_as_such() {
    let traced = Command::new("strace")
        .args([
            "-f",
            "-o",
            "/dev/null",
            env!("CARGO_BIN_EXE_vmarea"),
            "run",
            "--",
            "true",
        ])
        .output();
    let Ok(output) = traced else {
        return; // strace is not installed
    };
    let text = complaint(&output, 5);
    assert!(text.contains("traced"), "{text}");
}
