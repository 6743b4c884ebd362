# Strings that grew in turn, so that realloc moved them with mremap; random letters are checked and written again.
# usage: strings.pl SECONDS [STRINGS]
use strict;
use warnings;

my ($seconds, $many) = (shift, shift // 3000);
sub letter { return chr(65 + $_[0] % 26) }
srand 7;
my @strings = ('') x $many;
for (1 .. 6 * $many) {
    my $number = int rand $many;
    $strings[$number] .= letter($number) x 40_000;
}
my @filled = grep { length $strings[$_] } 0 .. $#strings;
my $finish = time + $seconds;
while (time < $finish) {
    my $number = $filled[rand @filled];
    my $at = int rand length $strings[$number];
    die "string $number, letter $at" if substr($strings[$number], $at, 1) ne letter($number);
    substr($strings[$number], $at, 1) = letter($number);
}
print "every letter was right\n";
