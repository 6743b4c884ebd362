//! Numbers of processes on the command line.

/// Reads the number of a process. A name is answered with the way to its number.
pub fn pid(argument: &str) -> Result<i32, String> {
    match argument.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ if argument.starts_with(|c: char| c.is_alphabetic()) => Err(format!(
            "the number of a process is needed: pgrep {argument} prints it"
        )),
        _ => Err("the number of a process is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_number() {
        assert_eq!(pid("42"), Ok(42));
        for wrong in ["", "0", "-1", "99999999999", "4x"] {
            let said = pid(wrong).unwrap_err();
            assert_eq!(said, "the number of a process is needed", "{wrong}");
        }
        assert!(pid("redis").unwrap_err().ends_with("pgrep redis prints it"));
    }
}
