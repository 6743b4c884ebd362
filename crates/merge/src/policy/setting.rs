//! Settings: the switches and rules of a policy by name.
//!
//! A user sets them on the command line (`linux+copy_budget=64`) or in a file. `settings!` takes a
//! policy apart without `..`, so a new switch or rule cannot be forgotten: it has a name, or the
//! crate does not compile. A rule in a group has the group's name before a dot:
//! `advice.populate`.

use super::rules::{AdviceRules, DontunmapRules};
use super::rules::{CloseHook, HugetlbPlacement, MmapLimits, MremapChecks, MremapRoom};
use super::{AdjustLock, Merging, OneSided, Policy, Rules, SharingCheck};
use alloc::string::String;
use alloc::vec::Vec;

/// A switch or rule of a policy that can be set.
pub struct Setting<'a> {
    /// Name, as users write it.
    pub name: &'static str,
    value: Value<'a>,
}

enum Value<'a> {
    OnOff(&'a mut bool),
    Pages(&'a mut u64),
    Number(&'a mut u32),
    Word(&'a mut dyn Word),
}

/// A value that is one of several words.
trait Word {
    fn words(&self) -> Vec<&'static str>;
    fn get(&self) -> &'static str;
    fn set(&mut self, word: &str) -> bool;
}

macro_rules! words {
    ($($type:ident { $($word:literal => $variant:ident),+ })+) => {$(
        impl Word for $type {
            fn words(&self) -> Vec<&'static str> {
                Vec::from([$($word),+])
            }

            fn get(&self) -> &'static str {
                match self {
                    $($type::$variant => $word,)+
                }
            }

            fn set(&mut self, word: &str) -> bool {
                *self = match word {
                    $($word => $type::$variant,)+
                    _ => return false,
                };
                true
            }
        }
    )+};
}

words! {
    SharingCheck { "thesis" => Thesis, "truth" => Truth }
    AdjustLock { "always" => Always, "when_needed" => WhenNeeded }
    OneSided {
        "neighbour_singular" => NeighbourSingular,
        "holder_singular" => HolderSingular,
        "either" => Either
    }
    CloseHook { "never_merges" => NeverMerges, "may_not_disappear" => MayNotDisappear }
    HugetlbPlacement { "own" => Own, "common" => Common }
    MremapChecks { "first" => First, "after_unmapping" => AfterUnmapping, "late" => Late }
    MremapRoom { "moves" => Moves, "always" => Always }
    MmapLimits { "before_cutting" => BeforeCutting, "after_cutting" => AfterCutting }
}

impl Setting<'_> {
    /// Sets the value; returns false if the setting does not take it. A setting that is on or off
    /// takes `on` and `off`.
    pub fn set(&mut self, text: &str) -> bool {
        match &mut self.value {
            Value::OnOff(on) => match text {
                "on" => **on = true,
                "off" => **on = false,
                _ => return false,
            },
            Value::Pages(pages) => match text.parse() {
                Ok(number) => **pages = number,
                Err(_) => return false,
            },
            Value::Number(value) => match text.parse() {
                Ok(number) => **value = number,
                Err(_) => return false,
            },
            Value::Word(word) => return word.set(text),
        }
        true
    }

    /// Returns the value as [`set`](Self::set) takes it.
    pub fn get(&self) -> String {
        use alloc::string::ToString;
        match &self.value {
            Value::OnOff(on) => String::from(if **on { "on" } else { "off" }),
            Value::Pages(pages) => pages.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Word(word) => String::from(word.get()),
        }
    }

    /// True if the setting is on or off.
    pub fn is_on_off(&self) -> bool {
        matches!(self.value, Value::OnOff(_))
    }

    /// Returns the values that the setting takes; capitals stand for a number.
    pub fn values(&self) -> Vec<&'static str> {
        match &self.value {
            Value::OnOff(_) => Vec::from(["on", "off"]),
            Value::Pages(_) => Vec::from(["PAGES"]),
            Value::Number(_) => Vec::from(["NUMBER"]),
            Value::Word(word) => word.words(),
        }
    }
}

/// Creates settings that are named like the variables that hold them, after a prefix.
macro_rules! settings {
    ($all:ident, $prefix:literal, $($kind:ident: $($field:ident)+;)+) => {
        $all.extend([$($(Setting {
            name: concat!($prefix, stringify!($field)),
            value: Value::$kind($field),
        },)+)+]);
    };
}

/// Returns the switches of a policy: what goes beyond a kernel's rules, and how it locks.
///
/// ```
/// use vmarea_merge::policy::Policy;
/// use vmarea_merge::policy::setting::{Setting, names, rules, switches, without_effect};
///
/// let mut policy = Policy::LINUX;
/// let is_wanted = |setting: &&mut Setting<'_>| setting.name == "different_anon_vmas";
/// let mut all = switches(&mut policy);
/// let setting = all.iter_mut().find(is_wanted).expect("a switch");
/// assert!(setting.set("on") && !setting.set("perhaps"));
/// assert_eq!(setting.get(), "on");
/// drop(all);
/// assert!(policy.merging.different_anon_vmas);
/// assert!(names(rules).contains(&"brk_joins_next"));
///
/// // Shared pages prevent every merge of the thesis, so none is copied.
/// let mut policy = Policy::THESIS;
/// policy.merging.copy_budget = 64;
/// assert!(without_effect(&policy).iter().any(|(name, _)| *name == "copy_budget"));
/// ```
pub fn switches(policy: &mut Policy) -> Vec<Setting<'_>> {
    let Policy {
        name: _,
        rules: _,
        merging,
        adjust_lock,
        own: _,
    } = policy;
    let Merging {
        sharing,
        update_pgoff,
        different_anon_vmas,
        relocate,
        either_survives,
        renumber_in_place,
        copy_budget,
        remap_freely,
        early_anon_vma,
        spread_charge,
        collector,
        splits_huge,
    } = merging;
    let mut all = Vec::new();
    settings! { all, "",
        OnOff: update_pgoff different_anon_vmas relocate either_survives renumber_in_place;
        Pages: copy_budget;
        OnOff: remap_freely early_anon_vma spread_charge collector splits_huge;
        Word: sharing adjust_lock;
    }
    all
}

/// Returns the rules of a policy, except the version of the kernel that they describe.
pub fn rules(policy: &mut Policy) -> Vec<Setting<'_>> {
    let Rules {
        version: _,
        anon_pgoff_of_files,
        one_sided,
        close_hook,
        huge_aligned_anon,
        huge_aligned_zero,
        map_stack_nohuge,
        map_above_4g,
        map_droppable,
        mmap_limits,
        mmap_asks_next_first,
        ksm_flag_first,
        ksm_flag_first_on_zero,
        mprotect_uncharges,
        onfault_asks_access,
        mempolicy_modes,
        numa_balancing,
        no_keys_is_none_left,
        mseal,
        seal_guards_dev_zero,
        memory_merge,
        thp_disable_except_advised,
        mdwe,
        secret_locked,
        special_splits,
        hugetlb_placement,
        advice,
        mremap_checks,
        mremap_room,
        mremap_many,
        expand_joins_next,
        dontunmap,
        uffd_takes_droppable,
        uffd_asks_min_addr,
        uffd_rwp,
        uffd_keeps_protection,
        uffd_moves_apart,
        huge_aligned_files,
        uffd_protects_files,
        brk_joins_next,
        brk_finds_heap,
    } = &mut policy.rules;
    let mut all = Vec::new();
    settings! { all, "",
        Word: one_sided close_hook mmap_limits hugetlb_placement mremap_checks mremap_room;
        Number: mempolicy_modes;
        OnOff: anon_pgoff_of_files huge_aligned_anon huge_aligned_zero huge_aligned_files map_stack_nohuge
            map_above_4g map_droppable mmap_asks_next_first ksm_flag_first ksm_flag_first_on_zero mprotect_uncharges
            onfault_asks_access numa_balancing no_keys_is_none_left mseal seal_guards_dev_zero
            memory_merge thp_disable_except_advised mdwe secret_locked special_splits
            mremap_many expand_joins_next uffd_takes_droppable uffd_asks_min_addr
            uffd_rwp uffd_keeps_protection uffd_moves_apart
            uffd_protects_files brk_joins_next brk_finds_heap;
    }
    of_advice(advice, &mut all);
    of_dontunmap(dontunmap, &mut all);
    all
}

fn of_advice<'a>(advice: &'a mut AdviceRules, all: &mut Vec<Setting<'a>>) {
    let AdviceRules {
        populate,
        populate_skips_holes,
        dontneed_locked,
        remove_asks_write,
        dofork_refuses_special,
        collapse,
        collapse_asks_write,
        collapse_of_none,
        dontneed_frees_tables,
        guard_regions,
        guard_flag,
        process_willneed,
        process_checks_first,
        process_own,
        process_own_free,
    } = advice;
    settings! { all, "advice.",
        OnOff: populate populate_skips_holes dontneed_locked remove_asks_write
            dofork_refuses_special collapse collapse_asks_write collapse_of_none
            dontneed_frees_tables guard_regions guard_flag process_willneed process_checks_first
            process_own process_own_free;
    }
}

fn of_dontunmap<'a>(dontunmap: &'a mut DontunmapRules, all: &mut Vec<Setting<'a>>) {
    let DontunmapRules {
        loses_anon_vma,
        resets_pgoff,
        cuts_locked,
        stays_apart,
        counts_locked,
        charges_next,
    } = dontunmap;
    settings! { all, "dontunmap.",
        OnOff: loses_anon_vma resets_pgoff cuts_locked stays_apart counts_locked charges_next;
    }
}

/// Returns the names of a group of settings: [`switches`] or [`rules`].
pub fn names(of: fn(&mut Policy) -> Vec<Setting<'_>>) -> Vec<&'static str> {
    let mut policy = Policy::LINUX;
    of(&mut policy).iter().map(|setting| setting.name).collect()
}

/// Returns the settings that have no effect in `policy` because of another one, each with the
/// reason.
///
/// Only settings that differ from their neutral value are listed. Presets of older kernels contain
/// some, because their rules for a call that they lack are those of the next newer kernel; a user
/// who sets one expects an effect.
pub fn without_effect(policy: &Policy) -> Vec<(&'static str, &'static str)> {
    let Merging {
        sharing,
        update_pgoff,
        different_anon_vmas,
        either_survives,
        copy_budget,
        splits_huge,
        ..
    } = policy.merging;
    let Rules {
        advice, dontunmap, ..
    } = policy.rules;
    let changes_pages = different_anon_vmas || update_pgoff;
    let counts_all = sharing == SharingCheck::Thesis;
    let no_change = "pages change only with different_anon_vmas or update_pgoff";
    let checks = [
        (
            either_survives && !changes_pages,
            "either_survives",
            no_change,
        ),
        (copy_budget > 0 && !changes_pages, "copy_budget", no_change),
        (splits_huge && !changes_pages, "splits_huge", no_change),
        (
            copy_budget > 0 && counts_all,
            "copy_budget",
            "with sharing thesis, shared pages always prevent a merge",
        ),
        (
            advice.populate_skips_holes && !advice.populate,
            "advice.populate_skips_holes",
            "advice.populate is off",
        ),
        (
            advice.collapse_asks_write && !advice.collapse,
            "advice.collapse_asks_write",
            "advice.collapse is off",
        ),
        (
            policy.rules.ksm_flag_first_on_zero && !policy.rules.ksm_flag_first,
            "ksm_flag_first_on_zero",
            "ksm_flag_first is off",
        ),
        (
            advice.guard_flag && !advice.guard_regions,
            "advice.guard_flag",
            "advice.guard_regions is off",
        ),
        (
            policy.rules.seal_guards_dev_zero && !policy.rules.mseal,
            "seal_guards_dev_zero",
            "mseal is off",
        ),
        (
            dontunmap.resets_pgoff && !dontunmap.loses_anon_vma,
            "dontunmap.resets_pgoff",
            "dontunmap.loses_anon_vma is off",
        ),
    ];
    let applies = checks.into_iter().filter(|(applies, ..)| *applies);
    applies.map(|(_, name, why)| (name, why)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_can_be_set_and_read() {
        for of in [switches, rules] {
            for name in names(of) {
                let mut policy = Policy::LINUX;
                let values = of(&mut policy)
                    .into_iter()
                    .find(|setting| setting.name == name)
                    .map(|setting| setting.values())
                    .unwrap();
                for value in values {
                    let value = value.replace("PAGES", "17").replace("NUMBER", "3");
                    let mut all = of(&mut policy);
                    let one = all.iter_mut().find(|setting| setting.name == name).unwrap();
                    assert!(one.set(&value), "{name}={value}");
                    assert_eq!(one.get(), value, "{name}");
                    assert!(!one.set("?"), "{name}");
                }
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut all = names(switches);
        all.extend(names(rules));
        let number = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), number);
    }

    #[test]
    fn the_newest_presets_contain_nothing_without_effect() {
        for preset in [
            Policy::LINUX,
            Policy::LINUX_6_12,
            Policy::VMAREA,
            Policy::LINUX_6_1,
        ] {
            assert_eq!(without_effect(&preset), [], "{}", preset.name);
        }
    }
}
