"""What people run on a namespace of a SeaweedFS.

`opening` holds a namespace that no gateway serves; `views` reads partitions, and changes nothing.
`check` walks every file and says what does not hold; `adopt` brings topics back whose rows are
lost; `importing` writes the log of a partition that has its offsets already.
"""
