//! Names of VMA flags.

use serde::{Serialize, Serializer};
use vmarea::types::VmFlags;

/// Formats the permissions as `rwxp`, as in `/proc/PID/maps`.
pub fn letters(flags: VmFlags) -> String {
    [
        (VmFlags::READ, 'r', '-'),
        (VmFlags::WRITE, 'w', '-'),
        (VmFlags::EXEC, 'x', '-'),
        (VmFlags::MAYSHARE, 's', 'p'),
    ]
    .iter()
    .map(|&(flag, set, unset)| if flags.contains(flag) { set } else { unset })
    .collect()
}

/// Returns Linux's names of the flags, in lower case and without `VM_`; unnamed bits as numbers.
pub fn names(flags: VmFlags) -> Vec<String> {
    let mut names = Vec::new();
    let mut named = VmFlags::empty();
    for (name, flag) in VmFlags::all().iter_names() {
        if flags.contains(flag) {
            named |= flag;
            if !VmFlags::PKEY.contains(flag) {
                names.push(name.to_lowercase());
            }
        }
    }
    match flags.pkey() {
        0 => {}
        key => names.push(format!("pkey{key}")),
    }
    let rest = (flags - named).bits();
    names.extend(
        (0..64)
            .filter(|bit| rest >> bit & 1 == 1)
            .map(|bit| format!("bit{bit}")),
    );
    names
}

/// Returns the flag names for a table column.
///
/// Flags that the four permission letters show are omitted. The permissions that `mprotect` may set
/// are shown as one word (`may:rwx`).
pub fn brief(flags: VmFlags) -> String {
    let may = letters(VmFlags::from_bits_retain(
        (flags & VmFlags::MAYRWX).bits() >> 4,
    ));
    let said = VmFlags::ACCESS | VmFlags::MAYRWX | VmFlags::SHARED | VmFlags::MAYSHARE;
    let mut words = vec![format!("may:{}", &may[..3])];
    words.extend(names(flags - said));
    words.join(" ")
}

/// Serializes flags as a list of names.
pub(super) fn serialize<S: Serializer>(flags: &VmFlags, serializer: S) -> Result<S::Ok, S::Error> {
    names(*flags).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_their_names_and_nothing_is_lost() {
        let flags = VmFlags::READ | VmFlags::WRITE | VmFlags::MAYRWX | VmFlags::ACCOUNT;
        assert_eq!(letters(flags), "rw-p");
        assert_eq!(brief(flags), "may:rwx account");
        assert_eq!(
            brief(VmFlags::READ | VmFlags::SHARED | VmFlags::MAYREAD),
            "may:r--"
        );
        let odd = VmFlags::from_bits_retain(1 << 60) | VmFlags::from_pkey(5);
        assert_eq!(names(odd), ["pkey5", "bit60"]);
    }
}
