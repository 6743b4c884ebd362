//! Dates of the Gregorian calendar from times since 1970, for people who read a trace's header.

/// Days from 0000-03-01, with which the calendar's cycle of 400 years begins, to 1970-01-01.
const TO_1970: u64 = 719_468;
const DAYS_OF_400_YEARS: u64 = 146_097;

/// Formats a time in milliseconds since 1970 as `2026-11-27 14:17:21 UTC`.
///
/// A year begins in March here, so that a leap day is its last one.
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let days = seconds / 86_400 + TO_1970;
    let day_of_cycle = days % DAYS_OF_400_YEARS;
    let leap_days = day_of_cycle / 1460 - day_of_cycle / 36_524 + day_of_cycle / 146_096;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = month_from_march % 12 + 3 - if month_from_march >= 10 { 12 } else { 0 };
    let year = days / DAYS_OF_400_YEARS * 400 + year_of_cycle + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_date() {
        // From `date -u -d @SECONDS`.
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_740_787_200, "2025-03-01 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1000 + 999), date);
        }
        assert!(utc(u64::MAX).ends_with(" UTC"));
    }
}
