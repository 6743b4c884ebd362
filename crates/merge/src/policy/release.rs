//! Release strings of kernels, such as `6.12.107+deb13-amd64`.

/// Returns the major and minor version of a release; `None` if it does not begin with them.
///
/// ```
/// use vmarea_merge::policy::release::version;
///
/// assert_eq!(version("6.18.44-amd64"), Some((6, 18)));
/// assert_eq!(version("weird"), None);
/// ```
pub fn version(release: &str) -> Option<(u32, u32)> {
    Some((number(release, 0)?, number(release, 1)?))
}

/// Returns the third number of a release; 0 if it has none.
///
/// ```
/// use vmarea_merge::policy::release::patch;
///
/// assert_eq!(patch("6.12.107+deb13-amd64"), 107);
/// assert_eq!(patch("6.18"), 0);
/// ```
pub fn patch(release: &str) -> u32 {
    number(release, 2).unwrap_or(0)
}

fn number(release: &str, n: usize) -> Option<u32> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    parts.nth(n)?.parse().ok()
}
