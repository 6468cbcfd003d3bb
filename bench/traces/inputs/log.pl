# A server's log, read by three interpreter threads: hashes of arrays, regular expressions, sorting. Prints what they found.
use strict;
use warnings;
use threads;

sub lines {
    my $x = shift;
    my $next = sub { $x = ($x * 1103515245 + 12345) & 0x7fffffff; return $x >> 8 };
    return map {
        sprintf '10.0.%d.%d - [%02d:%02d:%02d] "GET /page/%d.html?q=%d" %d %d', $next->() % 4, $next->() % 250, $next->() % 24,
            $next->() % 60, $next->() % 60, $next->() % 200, $next->() % 9999, (200, 200, 200, 304, 404)[ $next->() % 5 ], $next->() % 50000
    } 1 .. 700;
}

sub work {
    my (%pages, %clients);
    for my $line (lines(shift)) {
        my ($client, $time, $page, $status, $bytes) = $line =~ m{^(\S+) - \[(\S+)\] "GET ([^?"]+)\S*" (\d+) (\d+)} or next;
        push @{ $pages{$page}{$status} }, { time => $time, bytes => $bytes };
        $clients{$client}{$page}++;
    }
    my @order = sort { keys %{ $pages{$b} } <=> keys %{ $pages{$a} } || $a cmp $b } keys %pages;
    my $bytes = 0;
    for my $page (@order) { $bytes += $_->{bytes} for map { @$_ } values %{ $pages{$page} } }
    return join ' ', scalar @order, scalar keys %clients, $bytes, $order[0];
}

print "$_\n" for map { $_->join } map { my $seed = $_; threads->create(sub { work($seed) }) } 1 .. 3;
