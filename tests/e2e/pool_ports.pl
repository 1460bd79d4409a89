# SPDX-License-Identifier: Apache-2.0
# A server in a sandbox, for tests of its ports: each path answers in another way. A process for each connection.
use strict;
use IO::Socket::INET;
$SIG{CHLD} = 'IGNORE';
$| = 1;
my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $ARGV[0], Listen => 64, ReuseAddr => 1) or die "$!";
print "ready\n";
while (my $c = $server->accept) {
    next if fork;
    $c->autoflush(1);
    my $head = '';
    while (my $line = <$c>) { $head .= $line; last if $line eq "\r\n"; }
    my ($method, $path) = $head =~ m{^(\S+) ([^ ?]*)};
    my ($length) = $head =~ /^Content-Length: (\d+)/mi;
    my $body = '';
    if ($head =~ /^Transfer-Encoding: chunked/mi) {
        while (1) {
            my $n = hex <$c>;
            read $c, my $piece, $n if $n;
            $body .= $piece if $n;
            <$c>;
            last unless $n;
        }
    } elsif ($length) { read $c, $body, $length; }
    if ($path eq '/head') { print $c "HTTP/1.1 200 OK\r\nContent-Length: " . length($head) . "\r\nX-Method: $method\r\n\r\n$head"; }
    elsif ($path eq '/body') { print $c "HTTP/1.1 201 Made\r\nContent-Length: " . length($body) . "\r\n\r\n$body"; }
    elsif ($path eq '/chunks') { print $c "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Hop: 1\r\nConnection: X-Hop\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: x\r\n\r\n"; }
    elsif ($path eq '/to-the-end') { print $c "HTTP/1.0 200 OK\r\n\r\nuntil it closes"; }
    elsif ($path eq '/cut') { print $c "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nnot all of it"; }
    elsif ($path eq '/two') { print $c "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"; }
    elsif ($path eq '/twice') { print $c "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"; }
    elsif ($path eq '/garbage') { print $c "SSH-2.0-none\r\n\r\n"; }
    elsif ($path eq '/long') { print $c "HTTP/1.1 200 OK\r\n"; print $c "X-$_: " . 'y' x 1000 . "\r\n" for 1 .. 100; print $c "\r\n"; }
    elsif ($path eq '/silent') { sleep 1000; }
    elsif ($path eq '/empty') { print $c "HTTP/1.1 204 No Content\r\n\r\n"; }
    elsif ($path eq '/continue') { print $c "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"; }
    elsif ($path eq '/big') { print $c "HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n"; print $c 'z' x 50000 for 1 .. 100; }
    elsif ($path eq '/events') {
        print $c "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        # each event waits for a file, which the test makes when it has seen the one before
        for my $n (1 .. 3) { print $c "data: $n\n\n"; select undef, undef, undef, 0.02 until -e "/tmp/event-$n"; }
    } elsif ($path eq '/upgrade') {
        print $c "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nwelcome\n";
        while (sysread $c, my $bytes, 65536) { print $c uc $bytes; }
    }
    close $c;
    exit 0;
}
