# Text, hashes and sorting; the same in interpreter threads and in child processes. Prints digests.
use strict;
use warnings;
use threads;
use Digest::SHA qw(sha256_hex);

sub work {
    my ($seed, $lines) = @_;
    my $x = $seed;
    my $next = sub { $x = ($x * 1103515245 + 12345) & 0x7fffffff; return $x >> 8 };
    my (%count, %lines, @text);
    for my $i (1 .. $lines) {
        my $line = join ' ', map { 'w' . $next->() % 5000 } 1 .. $next->() % 12 + 1;
        push @text, $line;
        for my $word (split / /, $line) {
            $count{$word}++;
            push @{ $lines{$word} }, $i;
        }
    }
    my @order = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
    my $all = join "\n", @text;
    (my $changed = $all) =~ s/w(\d)(\d*)/"<$2" . ($1 + 1) . '>'/ge;
    my $found = () = $all =~ /(?:w1\d+ ){2,}/g;
    my @parts = map { sprintf '%s:%d:%s', $_, $count{$_}, join ',', @{ $lines{$_} } } @order;
    delete @lines{ @order[0 .. $#order / 2] };
    my $rest = join ',', map { "$_=" . scalar @{ $lines{$_} } } sort keys %lines;
    return sha256_hex(join '|', @parts, $changed, $found, $rest, pack('w*', map { scalar @$_ } @lines{ sort keys %lines }));
}

print 'alone: ', work(1, 20000), "\n";

my @threads = map { my $seed = $_; threads->create(sub { work($seed, 3000) }) } 1 .. 6;
print "thread: ", $_->join, "\n" for @threads;

for my $seed (1 .. 4) {
    my $pid = open(my $child, '-|') // die "fork: $!";
    if (!$pid) {
        print work($seed + 100, 2000);
        exit 0;
    }
    print 'process: ', <$child>, "\n";
    close $child;
}
