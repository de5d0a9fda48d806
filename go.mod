module github.com/seed-ee4278a0/throttled

go 1.26
